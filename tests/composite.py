"""Run the steps of a composite action as a runner of GitHub does: expressions, environments, one shell a step."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_EXPRESSION = re.compile(r"\$\{\{ (.*?) \}\}")
_TERM = re.compile(r"(?P<name>inputs\.[\w-]+) (?P<how>==|!=) '(?P<value>[^']*)'")
# Of the interpreter: pip has nothing to do where Draftproof is installed, and WITHOUT_TORCH is one that lacks torch.
SHIM = """#!/bin/sh
case "$*" in
  "-m pip install "*) echo "$@" >> {log}; exit 0 ;;
  "-c import torch") test -z "$WITHOUT_TORCH"; exit ;;
esac
exec {python} "$@"
"""


class Composite(NamedTuple):
    """What running an action came to: `used` are the steps that are actions of others, with what they are given."""

    code: int
    output: str
    outputs: dict[str, str]
    summary: str
    used: list[tuple[str, dict[str, str]]]
    installed: list[str]


def shim(folder: Path, python: str) -> Path:
    """Write an interpreter that installs nothing, and keeps in installed.txt beside it what it should have."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "python"
    path.write_text(SHIM.format(python=shlex.quote(python), log=shlex.quote(str(folder / "installed.txt"))))
    path.chmod(0o755)
    return path


def run_composite(
    action: Path, read: Mapping[str, Any], given: Mapping[str, str], project: Path, python: str, **more: str
) -> Composite:
    """Run a composite action in a project; `more` is added to the environment."""
    assert read["runs"]["using"] == "composite"
    assert set(given) <= set(read["inputs"]), "a runner warns of an input that there is none of"
    inputs = {f"inputs.{name}": str(one.get("default", "")) for name, one in read["inputs"].items()}
    inputs |= {f"inputs.{name}": value for name, value in given.items()}
    runner = project.parent / "runner"
    interpreter = shim(runner, python)
    summary, code, told, used, values = runner / "summary.md", 0, "", [], dict(inputs)
    summary.touch()
    for number, step in enumerate(read["runs"]["steps"]):
        if not is_taken(step.get("if", "${{ success() }}"), values, failed=code != 0):
            continue
        if "uses" in step:
            used.append((step["uses"], {name: filled(str(one), values) for name, one in step["with"].items()}))
            continue
        outputs, script = runner / f"outputs-{number}", runner / f"step-{number}.sh"
        outputs.touch()
        script.write_text(step["run"])
        environment = {name: filled(value, values) for name, value in step.get("env", {}).items()}
        environment |= {"GITHUB_OUTPUT": str(outputs), "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_ACTIONS": "true"}
        environment |= {"GITHUB_ACTION_PATH": str(action.parent), "PATH": f"{interpreter.parent}:{os.environ['PATH']}"}
        assert step["shell"] == "bash", "a runner asks for the shell of each step"
        ran = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=project / filled(step.get("working-directory", "."), values),
            env={**os.environ, **environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        code, told = code or ran.returncode, told + ran.stdout
        for line in outputs.read_text().splitlines():
            name, _, value = line.partition("=")
            values[f"steps.{step['id']}.outputs.{name}"] = value
    final = {name: filled(one["value"], values) for name, one in read["outputs"].items()}
    log = runner / "installed.txt"
    return Composite(code, told, final, summary.read_text(), used, log.read_text().splitlines() if log.exists() else [])


def filled(text: str, values: Mapping[str, str]) -> str:
    """Fill expressions in; an output of a step that did not run is "". Raises KeyError for one that nobody knows."""
    return _EXPRESSION.sub(lambda found: values.get(found[1], "") if is_output(found[1]) else values[found[1]], text)


def is_output(name: str) -> bool:
    return re.fullmatch(r"steps\.\w+\.outputs\.[\w-]+", name) is not None


def is_taken(condition: str, values: Mapping[str, str], *, failed: bool) -> bool:
    """Return whether a step runs; without a word on the steps before it only if none of them failed."""
    found = _EXPRESSION.fullmatch(condition)
    assert found is not None, condition
    terms = found[1].split(" && ")
    held = not failed or "!cancelled()" in terms
    for term in terms:
        if term not in ("!cancelled()", "success()"):
            read = _TERM.fullmatch(term)
            assert read is not None, term
            held = held and (values[read["name"]] == read["value"]) == (read["how"] == "==")
    return held
