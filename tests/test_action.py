"""The Action (action.yml) as it stands: its steps are run as a runner does, on an engine of a project's own."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.composite import Composite, run_composite, shim

yaml = pytest.importorskip("yaml")
ACTION = Path(__file__).resolve().parent.parent / "action.yml"
READ: dict[str, Any] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
STEPS = READ["runs"]["steps"]
ENGINE = """
from dataclasses import replace
from draftproof.reference.run import ReferenceSubject
from draftproof.subject import Limits

class Right(ReferenceSubject):
    name, limits = "right", Limits(features=())

class Wrong(Right):
    name = "wrong"

    def run(self, scenario, script):
        print("::error::no order of a subject's")
        trace = super().run(scenario, script)
        ahead = lambda one: one._replace(value=one.value + 1) if one.channel == "verify.positions" else one
        return replace(trace, observations=tuple(map(ahead, trace.observations)))
"""
CHECK = "check --draft ngram --examples 1 --contract verify.positions --subject 'own_engine:{}'"


def run(folder: Path, **given: str) -> Composite:
    """Run the Action in a project that has an engine in a folder `sub dir`, which is on its path."""
    project = folder / "project"
    (project / "sub dir").mkdir(parents=True, exist_ok=True)
    (project / "sub dir/own_engine.py").write_text(ENGINE)
    named = {name.replace("_", "-"): value for name, value in given.items()}
    where = {"working-directory": "sub dir", **named}
    return run_composite(ACTION, READ, where, project, sys.executable, PYTHONPATH=".")


def test_an_engine_that_is_wrong_fails_the_step_and_is_told(tmp_path):
    ran = run(tmp_path, run=CHECK.format("Wrong"), name="my engine", artifact="found")
    assert (ran.code, ran.outputs["verdict"], ran.outputs["exit-code"]) == (1, "FAIL", "1")
    assert ran.summary.startswith("## my engine: FAIL\n")
    assert "verify row" in ran.summary
    folder = tmp_path / "project/sub dir"
    assert json.loads((folder / ran.outputs["report"]).read_text())["verdict"] == "FAIL"
    badge = json.loads((folder / ran.outputs["badge"]).read_text())
    assert badge == {
        "schemaVersion": 1,
        "label": "my engine",
        "message": "FAIL, 1 scenario",
        "color": "red",
        "isError": True,
    }
    (told,) = [line for line in unheld(ran.output.splitlines()) if line.startswith("::")]
    assert told.startswith("::error title=my engine%3A verify.positions::verify row 0, request ")
    assert "draftproof check --draft ngram" in told
    ((action, kept),) = ran.used
    assert action.startswith("actions/upload-artifact@")
    assert kept["name"] == "found"
    assert [(tmp_path / "project" / path).is_dir() for path in kept["path"].split("\n") if path] == [True, True]


def test_one_that_is_right_passes_if_too_little_is_let_off(tmp_path):
    ran = run(tmp_path, run=f"draftproof {CHECK.format('Right')}", inconclusive="pass")
    assert (ran.code, ran.used) == (0, [])
    assert ran.outputs["verdict"] in ("PASS", "INCONCLUSIVE")
    assert ran.installed == [f"-m pip install {ACTION.parent}"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "invalid --run '': expected a command of draftproof, as 'check --subject my_subject:MyEngine'"),
        (
            {"run": "golden write a.yaml --log a.jsonl"},
            "expected a command that has a result to report, and 'golden write' has none; these have one: demo, ",
        ),
        ({"run": "golden"}, "expected a command that has a result to report, and 'golden' has none; these have one: "),
        ({"run": "chekc"}, "No such command 'chekc'"),
        ({"run": "check 'x"}, 'invalid --run "check \'x": expected words as in a shell: No closing quotation'),
        ({"run": "$(touch taken) `touch taken`; touch taken"}, "No such command '$(touch'"),
        ({"run": "check", "inconclusive": "maybe"}, "invalid --inconclusive 'maybe': expected fail, pass"),
    ],
)
def test_wrong_usage_fails_the_step_and_says_what_is_wrong(tmp_path, given, said):
    ran = run(tmp_path, requirement="none", **given)
    assert ran.code == 2
    assert said in ran.output
    assert ran.installed == []
    assert list(tmp_path.rglob("taken")) == []


def unheld(lines: list[str]) -> Iterator[str]:
    """Yield what a runner reads orders in: nothing between ::stop-commands::TOKEN and ::TOKEN::."""
    token = None
    for line in lines:
        if token is None and (held := re.fullmatch(r"::stop-commands::(.+)", line)):
            token = held[1]
        elif line == f"::{token}::":
            token = None
        elif token is None:
            yield line
    assert token is None


@pytest.mark.parametrize(
    ("index", "words"), [("https://localhost/cpu", "torch --index-url https://localhost/cpu"), ("", "torch")]
)
def test_torch_is_installed_where_there_is_none(tmp_path, index, words):
    given = {"torch-index": index, "requirement": "draftproof==0.1.0", "run": "--version"}
    read = {**READ, "runs": {**READ["runs"], "steps": STEPS[:1]}, "outputs": {}}
    (tmp_path / "project").mkdir()
    ran = run_composite(ACTION, read, given, tmp_path / "project", sys.executable, WITHOUT_TORCH="1")
    assert ran.installed == [f"-m pip install {words}", "-m pip install draftproof==0.1.0"]


def test_relative_paths_begin_in_the_working_directory_for_pip_and_the_command(tmp_path):
    own = shim(tmp_path / "project/sub dir/.venv/bin", sys.executable)
    ran = run(tmp_path, python=".venv/bin/python", requirement="./mine", run="chekc")
    assert "No such command 'chekc'" in ran.output
    assert (own.parent / "installed.txt").read_text() == "-m pip install ./mine\n"


def test_the_page_says_what_each_input_is():
    told = (ACTION.parent / "docs/own-ci.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (\S+|[^|]+) \|", told.partition("| input |")[2], re.MULTILINE))
    assert list(rows) == list(READ["inputs"])
    given = {name for name, one in READ["inputs"].items() if f"`{one.get('default')}`" == rows[name]}
    required = {name for name, one in READ["inputs"].items() if one.get("required")}
    assert required == {name for name, default in rows.items() if default == "required"} == {"run"}
    assert set(READ["inputs"]) - given - required == {"requirement", "torch-index", "artifact"}


def test_every_input_is_used_and_none_stands_in_a_script():
    text = ACTION.read_text(encoding="utf-8")
    used = set(re.findall(r"\$\{\{[^}]*?inputs\.([\w-]+)", text)) | set(re.findall(r"&& inputs\.([\w-]+)", text))
    assert used == set(READ["inputs"])
    assert all(one["description"] for one in (*READ["inputs"].values(), *READ["outputs"].values()))
    for step in STEPS:
        assert "${{" not in step.get("run", "")
        # A variable that a script does not read, or one that it reads and nobody gives, is a mistake.
        if "run" in step:
            read = set(re.findall(r"\$\{?([A-Z_]+)", step["run"]))
            assert set(step["env"]) - {"OMP_NUM_THREADS"} == {name for name in read if not name.startswith("GITHUB_")}
        else:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])
