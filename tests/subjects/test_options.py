"""--subject, --python, --url and --set on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftproof.cli import drafts
from draftproof.cli.app import run
from draftproof.properties.fit import fit
from draftproof.properties.formats.case import Case, encode
from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.values.drafts import Ngram
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.trace import Trace
from draftproof.reference.solved import solved
from tests.named import named


@pytest.fixture
def case(tmp_path: Path) -> Path:
    scenario = fit(named("eagle_padded"), Limits(steering="none"))
    path = tmp_path / "case.json"
    path.write_text(encode(Case(scenario=scenario, script=solved(scenario).script)))
    return path


@pytest.fixture(autouse=True)
def found(search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subjects in another Python find their module by PYTHONPATH."""
    monkeypatch.setenv("PYTHONPATH", search)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


def test_a_case_is_replayed_in_another_python(case, lean_python, capsys, tmp_path):
    options = ["--subject", "lean_subjects:Lean", "--python", lean_python, "--set", "act=raises"]
    code = run(["replay", str(case), *options, "--json", str(tmp_path / "out.json")])
    assert code == 3
    assert json.loads((tmp_path / "out.json").read_text())["verdict"] == "CRASH"
    out = capsys.readouterr().out
    assert "page 9 is out of range" in out
    assert f"--subject lean_subjects:Lean --python {lean_python} --set act=raises" in out


@pytest.mark.parametrize("debug", [False, True])
def test_what_a_subject_prints_is_shown_where_that_is_asked_for(debug, case, lean_python, capsys):
    options = ["--subject", "lean_subjects:Lean", "--python", lean_python, "--set", "act=prints"]
    run(["replay", str(case), *options, *(["--debug"] if debug else [])])
    assert ("what looks like an answer" in capsys.readouterr().err) is debug


@pytest.mark.parametrize("command", ["replay", "explain", "lab bisect parts"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--python P", "invalid --python 'P' without --subject: expected the name of what to run there"),
        ("--url U", "invalid --url 'U' without --subject"),
        ("--set a=b", "invalid --set 'a=b' without --subject"),
        ("--subject engine --set a", "invalid --set 'a': expected NAME=VALUE"),
        ("--subject engine --set a=1 --set b=3 --set a=2", "invalid --set 'a=1': expected a once"),
        ("--subject enginee", "did you mean engine?"),
        ("--subject no_such.module:x", "expected a module that exists, and there is no 'no_such' here; put its"),
        ("--subject engine --fault F", "expected without --fault and --patch"),
    ],
)
def test_what_does_not_go_together_is_told(command, options, expected, case, capsys):
    assert run([*command.split(), str(case), *options.split()]) == 2
    assert expected in said(capsys)


@pytest.mark.parametrize("command", ["check --examples 1", "replay CASE"])
def test_a_python_that_lacks_something_is_told(command, case, bare_python, capsys):
    words = [str(case) if word == "CASE" else word for word in command.split()]
    assert run([*words, "--subject", "engine", "--python", bare_python]) == 2
    assert f"invalid --python {bare_python!r}: expected one that has numpy and msgspec" in said(capsys)


def test_doctor_tells_what_a_subject_finds_and_lacks(lean_python, capsys, tmp_path):
    path = tmp_path / "doctor.json"
    assert run(["doctor", "--subject", "lean_subjects:Lean", "--python", lean_python, "--json", str(path)]) == 0
    out = capsys.readouterr().out
    assert "not reported for lack of a hook: round.rows" in out
    assert "lean: level text; drafts: eagle" in out
    found = json.loads(path.read_text())
    assert [(hook["name"], hook["found"]) for hook in found["hooks"]] == [("scheduler", False)]
    assert found["versions"]["no-such-package"] == ""
    assert run(["doctor", "--subject", "engine"]) == 0
    assert "engine: level whole; drafts: eagle" in capsys.readouterr().out


class OfCheckpoints(Subject):
    """It has no hooks; as an engine of one's own it says what it reports of any checkpoint, or looks into it before."""

    name = "mine"
    limits = Limits(models=("checkpoint",), drafts=("ngram", "eagle"))

    def __init__(self, looks: str = "no") -> None:
        self._looks = looks == "yes"

    def channels(self, scenario: Scenario) -> frozenset[str]:
        if self._looks:
            read_config(scenario.model.path)
        return frozenset({"accept.emitted"} | ({"propose.tokens"} if isinstance(scenario.draft, Ngram) else set()))

    def run(self, scenario: Scenario, script: Script) -> Trace:
        raise NotImplementedError


@pytest.mark.parametrize(("looks", "level"), [("no", "host"), ("yes", "unknown until check --model DIR")])
def test_doctor_says_the_level_that_a_check_would(looks, level, capsys):
    assert run(["doctor", "--subject", f"{__name__}:OfCheckpoints", "--set", f"looks={looks}"]) == 0
    assert f"mine: level {level}; drafts: ngram, eagle; models: checkpoint" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["check --examples 1", "fuzz --run RUN", "replay CASE"])
def test_a_python_without_the_engine_is_wrong_usage_in_one_sentence(command, case, lean_python, capsys, tmp_path):
    words = [{"CASE": str(case), "RUN": str(tmp_path / "run")}.get(word, word) for word in command.split()]
    assert run([*words, "--subject", "lean_subjects:Needing", "--python", lean_python]) == 2
    told = f"invalid --python {lean_python!r}: expected a Python in which no_such_engine is installed, which subject"
    assert said(capsys) == f"error: {told} 'lean_subjects:Needing' needs"


def test_an_engine_that_is_not_installed_here_is_wrong_usage(capsys):
    told = "error: invalid --subject 'vllm': expected a Python in which vllm is installed; --python ENV/bin/python"
    for command in ("check --examples 1", "doctor"):
        assert run([*command.split(), "--subject", "vllm"]) == 2
        assert said(capsys).startswith(told)


def test_doctor_says_that_an_engine_is_not_installed(lean_python, capsys, tmp_path):
    path = tmp_path / "doctor.json"
    options = ["--subject", "lean_subjects:Needing", "--python", lean_python, "--json", str(path)]
    assert run(["doctor", *options]) == 2
    assert "lean_subjects:Needing: level not installed" in capsys.readouterr().out
    found = json.loads(path.read_text())
    assert (found["level"], found["versions"]) == ("not installed", {"no_such_engine": ""})


def test_a_condition_is_told_in_its_sentence_once(lean_python, capsys):
    options = ["--subject", "lean_subjects:Lean", "--python", lean_python, "--set", "act=condition"]
    assert run(["check", "--examples", "3", *options]) == 3
    out = capsys.readouterr().out.splitlines()
    assert out.count("the server at x answered 500: boom") == 1
    assert not [line for line in out if "Traceback" in line or "lean_subjects.py" in line]
    assert [line for line in out if line.endswith("that did not finish (--verbose lists them)")]
    assert not [line for line in out if line.startswith(("draft.", "verify.")) or " INCONCLUSIVE   " in line]


def test_the_engine_has_a_name_as_well(capsys, monkeypatch):
    monkeypatch.setattr(drafts, "generated", lambda *_: iter([named("eagle_padded")]))
    assert run(["check", "--examples", "2", "--subject", "engine", "--contract", "verify.ids"]) == 0
    assert "--subject engine" in capsys.readouterr().out


def test_a_choice_names_its_options():
    choice = SubjectChoice(name="openai", python="py", settings={"url": "http://x", "limit": "3"})
    assert choice.options == {"subject": "openai", "python": "py", "url": "http://x", "set": ["limit=3"]}
