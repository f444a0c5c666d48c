"""The workflows of examples/ use commands and options that there are."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from draftproof import plugin

# The workflows to copy.


WORKFLOWS = Path(__file__).resolve().parent.parent / "examples/workflows"


def commands(text: str) -> list[list[str]]:
    """The words of every command of a workflow that is ours or pytest's."""
    yaml = pytest.importorskip("yaml")
    steps = [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
    lines = [shlex.split(line) for step in steps for line in step.get("run", "").splitlines()]
    return [words for words in lines if words and words[0] in ("draftproof", "pytest")]


@pytest.mark.parametrize("name", ["cpu.yml", "gpu.yml"])
def test_a_workflow_uses_what_there_is(name, pytestconfig):
    from typer.main import get_command

    from draftproof.cli.app import app

    known = get_command(app).commands  # type: ignore[attr-defined]
    parser = pytest.Parser(_ispytest=True)
    plugin.pytest_addoption(parser)
    ours = {option for one in parser.getgroup("draftproof").options for option in one.names()}
    found = commands((WORKFLOWS / name).read_text(encoding="utf-8"))
    assert {words[0] for words in found} == {"draftproof", "pytest"}
    for words in found:
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        if words[0] == "pytest":
            assert {one for one in options if one.startswith("--draftproof")} <= ours
            continue
        assert words[1] in known
        assert options <= {name for one in known[words[1]].params for name in one.opts}


def test_workflows_can_be_read_and_keep_what_failed():
    yaml = pytest.importorskip("yaml")
    for path in sorted(WORKFLOWS.iterdir()):
        read = yaml.safe_load(path.read_text(encoding="utf-8"))
        # YAML takes the key `on` for a truth.
        assert {"name", True, "permissions", "jobs"} <= set(read)
        for job in read["jobs"].values():
            kept = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
            assert kept
            assert all(step["if"] == "${{ !cancelled() }}" for step in kept)
            # What anybody can choose never stands in a command: it comes through the environment.
            assert not any("${{" in step.get("run", "") for step in job["steps"])
