"""SKILL.md: its form, its commands, and what it says of verdicts and failures."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli.app import run
from draftproof.properties.values.verdict import EXIT_CODES, Outcome
from tests.checkpoints import tiny_llama
from tests.test_action import ENGINE
from tests.warm import Warm

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parent.parent
SKILL = (ROOT / "SKILL.md").read_text(encoding="utf-8")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FENCES = _FENCE.findall(SKILL)
_INLINE = [" ".join(words.split()) for words in re.findall(r"`([^`]+)`", _FENCE.sub("", SKILL))]
_LINES = [(name, line) for name, block in _FENCES for line in block.splitlines()] + [("", line) for line in _INLINE]
COMMANDS = [line for _, line in _LINES if line.startswith("draftproof ")]
RUN = [line for name, line in _LINES if line.startswith("draftproof ") and name != "sh"]
"""What tests/test_docs.py does not run."""


def test_its_head_is_what_agents_read():
    head = yaml.safe_load(SKILL.split("---\n")[1])
    assert set(head) == {"name", "description"}
    assert re.fullmatch(r"[a-z0-9-]{1,64}", head["name"])
    assert 100 < len(head["description"]) <= 1024
    assert "before and after" in head["description"]


def test_the_failure_is_the_readmes():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = (block for _, block in _FENCES if block.startswith("FAIL"))
    assert shown in readme


def test_exit_codes_are_those_of_verdicts():
    found = re.findall(r"^\| ([\d, ]+) \| ([A-Z, ]+|wrong usage) \|", SKILL, re.MULTILINE)
    told = {int(code): name for codes, names in found for code, name in zip(*_split(codes, names), strict=True)}
    expected = {code: str(outcome) for outcome, code in reversed(EXIT_CODES.items())}
    assert told == expected | {2: "wrong usage", 125: str(Outcome.INCONCLUSIVE)}


def _split(*cells: str) -> list[list[str]]:
    return [cell.split(", ") for cell in cells]


def test_commands_have_the_options_that_they_are_given():
    from typer.main import get_command

    from draftproof.cli.app import app

    assert len(COMMANDS) > 10
    for line in COMMANDS:
        command: Any = get_command(app)
        words = shlex.split(line)[1:]
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert options <= {name for one in command.params for name in one.opts}, line


LOG = """{"request": 0, "prompt": [1, 2, 3, 1, 2], "max_tokens": 3}
{"request": 0, "round": 0, "emitted": [4]}
{"request": 0, "round": 1, "drafts": [3, 1], "emitted": [4]}
{"request": 0, "round": 2, "drafts": [5], "emitted": [4]}
"""
"""Its tokens are nobody's."""


def log(folder: Path) -> None:
    for name in ("LOG", "BEFORE", "AFTER"):
        (folder / f"{name}.jsonl").write_text(LOG)


def golden(folder: Path) -> None:
    where = ["--log", str(folder / "LOG.jsonl"), "--name", "any", "--mode", "thinking_off"]
    assert run(["golden", "write", str(folder / "GOLDEN.yaml"), *where]) == 0


def engine(folder: Path) -> None:
    (folder / "my_engine.py").write_text(f"{ENGINE}\nMyEngine = Wrong\n")


def kernels(folder: Path) -> None:
    shutil.copy(ROOT / "examples/own_kernel.py", folder / "my_kernels.py")


FOUND = ("check --subject my_engine", "judge")
"""What is run here is wrong."""
NOT_HERE = "check --model DIR --subject openai"
"""Nobody serves at that address."""


def test_commands_do_what_it_says(tmp_path: Path, warm: Warm):
    """One after another in a folder: with an engine that is wrong, a log that is wrong, a tiny checkpoint."""
    prepare: list[Callable[[Path], object]] = [engine, kernels, log, golden, lambda folder: tiny_llama(folder / "DIR")]
    for one in prepare:
        one(tmp_path)
    ended = {}
    for line in sorted(RUN, key=lambda line: "CASE.json" in line):
        cases = sorted(tmp_path.glob(".draftproof/cases/*.json"))
        line = re.sub(r"--examples \d+", "--examples 4", line)
        words = shlex.split(line.replace("CASE.json", cases[0].name if cases else "CASE.json"))[1:]
        done = warm.run([sys.executable, "-P", "-m", "draftproof.cli", *words], tmp_path, PYTHONPATH=str(tmp_path))
        ended[" ".join(words)] = (done.returncode, done.stdout + done.stderr)
    assert len(ended) == len(RUN)
    for line, (code, told) in ended.items():
        assert (code == 2) == line.startswith(NOT_HERE), f"{line}\n{told}"
        if line.startswith(FOUND):
            assert code == 1, f"{line}\n{told}"
    assert (tmp_path / "before.json").exists()
