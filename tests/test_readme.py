"""What the README shows is what happens."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines()]
CLI = [line for line in COMMANDS if line.startswith(".venv/bin/draftproof")]


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=300)


def cli(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-P", "-m", "draftproof.cli", *arguments], folder)


@pytest.mark.parametrize("line", CLI)
def test_commands_of_the_command_line_succeed(line: str, tmp_path: Path):
    done = cli(shlex.split(line)[1:], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
    assert all((tmp_path / name).is_file() for name in re.findall(r"--json (\S+)", line))


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("make ")])
def test_make_knows_the_targets(line: str):
    done = run(["make", "-n", *shlex.split(line)[1:]], ROOT)
    assert done.returncode == 0, done.stderr
    assert "draftproof" in done.stdout or "pytest" in done.stdout


FAULTS = re.findall(r'^```sh\nmake faults ARGS="([^"]+)"\n```\n\n```text\n(.*?)\n```', README, flags=re.MULTILINE)


def test_reports_of_faults_are_shown():
    assert len(FAULTS) == 3


@pytest.mark.parametrize(("arguments", "shown"), FAULTS)
def test_the_failing_report_is_the_one_that_is_shown(arguments: str, shown: str, tmp_path: Path):
    done = cli(["faults", "run", *shlex.split(arguments)], tmp_path)
    assert shown in " ".join(done.stdout.split()), done.stdout


@pytest.mark.parametrize("code", blocks("python"))
def test_python_runs(code: str, tmp_path: Path):
    done = run([sys.executable, "-P", "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr


def test_there_is_something_to_run():
    assert len(CLI) >= 4
    assert blocks("python")
    assert {"make check", "make test"} <= set(COMMANDS)
