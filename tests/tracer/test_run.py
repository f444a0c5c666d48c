"""`tracer run`: what is right passes, and of what is wrong the true explanation is named first."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from draftproof.cli.app import run
from draftproof.tracer.build import build
from draftproof.tracer.generate import generated
from draftproof.tracer.mistakes import every
from draftproof.tracer.program import Program, read_program
from draftproof.tracer.runs import TracerReport, judge
from draftproof.tracer.sessions import Session, sessions, small_sessions
from draftproof.tracer.simulated import EngineMistake
from tests.tracer.fake_engine import Oracle, Stock, serving

WIDTH = 3
OPTIONS = ["--requests", "8", "--longest", "40", "--tokens", "10"]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run") / "llama"
    build(directory, "llama", "eagle", length=512)
    return directory


def judged(endpoint: Stock | Oracle, program: Program, count: int = 12, longest: int = 60) -> TracerReport:
    return judge(endpoint, program, list(sessions(program, 1, count, longest, 12)), seconds=200)


@pytest.fixture(scope="module")
def mistaken(llama: Path) -> Callable[[str], TracerReport]:
    """What is said of transformers with a mistake."""
    return cache(lambda wrong: judged(Stock(llama, wrong=wrong), read_program(llama)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_stock_transformers_is_right(llama: Path, dtype: str):
    report = judged(Stock(llama, dtype), read_program(llama))
    assert (report.verdict, report.wrong) == ("PASS", 0)
    assert report.requests >= 12


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("positions ahead", "positions of decoded tokens one ahead"),
        ("entry missing", "KV entry at distance 1 missing, decoded rows"),
        ("rows rotated", "rows swapped: output of another request"),
        ("prompt truncated", "prompt truncated from the left to its last 19 tokens"),
    ],
)
def test_a_mistake_in_transformers_is_named(mistaken: Callable[[str], TracerReport], wrong: str, named: str):
    report = mistaken(wrong)
    assert report.verdict == "FAIL"
    assert report.explanations[0].name == named
    assert report.explanations[0].bits > 30


def test_a_case_is_short(mistaken: Callable[[str], TracerReport]):
    report = mistaken("positions ahead")
    assert report.case is not None
    (asked,) = report.case.session.requests
    assert len(asked.prompt) + asked.count < 12


def explained(program: Program, mistake: EngineMistake, seed: int) -> TracerReport:
    """Return the report of an engine that makes a mistake, whose case is not made smaller."""
    drawn, more = sessions(program, seed, 12, 60, 16), small_sessions(program, seed, 60, 16)
    return judge(Oracle(program, WIDTH, mistake), program, drawn, shrink=False, more=more)


NAMED = (
    ("F", "draft positions one ahead"),
    ("F", "draft cache a token short after a full accept"),
    ("F", "the step of a prompt counted as a round of drafts"),
    ("F", "accepted rows keep the draft's own states"),
    ("F", "KV entry of a rejected draft kept"),
    ("LF", "state not rolled back"),
    ("LF", "convolution's window not rolled back"),
    ("LF", "state not committed where no draft is accepted"),
)


@pytest.mark.parametrize(("mixers", "name"), NAMED)
def test_the_true_mistake_is_named_first(mixers: str, name: str):
    program = generated(3, 512, mixers, "eagle")
    mistakes = [one for of_draft in (True, False) for one in every(program, 40, WIDTH, of_draft=of_draft)]
    (mistake,) = (one for one in mistakes if one.name == name)
    report = explained(program, mistake, 1)
    assert (report.explanations[0].name, report.equal) == (name, 1)


@pytest.mark.parametrize(("mixers", "of_draft"), [("F", True), ("F", False), ("LF", False)])
def test_of_every_family_the_true_mistake_is_named_first(mixers: str, of_draft: bool):
    """Those that no prompt shows are in docs/tracer-sensitivity.md."""
    program, chance = generated(3, 512, mixers, "eagle"), random.Random(2)
    families: dict[str, list[EngineMistake]] = {}
    for one in every(program, 40, WIDTH, of_draft=of_draft):
        families.setdefault(one.family, []).append(one)
    chosen = [chance.choice(some) for some in families.values()]
    named = {one.name: explained(program, one, seed).explanations[:1] for seed, one in enumerate(chosen)}
    seen = {name: found[0].name for name, found in named.items() if found}
    assert len(seen) >= 0.8 * len(chosen)
    assert sum(name == found for name, found in seen.items()) >= 0.9 * len(seen)


@pytest.mark.parametrize("wrong", ["", "tells rounds", "wants a name"])
def test_a_right_server_passes(llama: Path, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    told = ["--drafts", "3"] if wrong == "tells rounds" else []
    told += ["--model", "tracer"] if wrong == "wants a name" else []
    with serving(Oracle(read_program(llama), WIDTH), wrong) as url:
        options = ["--url", f"{url}/v1", "--checkpoint", str(llama), *OPTIONS, *told]
        assert run(["tracer", "run", *options, "--json", str(tmp_path / "out.json")]) == 0
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["requests"] >= 8
    assert report["compared"] > 0
    assert "PASS: http://" in capsys.readouterr().out


def test_a_wrong_server_is_explained_and_replayed(llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    program, case = read_program(llama), tmp_path / "case.json"
    name = "draft cache a token short after a full accept"
    short = next(one for one in every(program, 30, WIDTH, of_draft=True) if one.name == name)
    with serving(Oracle(program, WIDTH, short), "tells rounds") as url:
        options = ["tracer", "run", "--url", url, "--checkpoint", str(llama), "--drafts", "3"]
        assert run([*options, *OPTIONS, "--case", str(case)]) == 1
        out = capsys.readouterr().out
        assert f"explained by: {name} (" in out
        assert "the number of tokens in decode round" in out
        assert run([*options, "--replay", str(case)]) == 1
    with serving(Oracle(program, WIDTH), "tells rounds") as url:
        options[3] = url
        assert run([*options, "--replay", str(case)]) == 0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("text only", "answers without token ids"),
        ("splits ids", "counted 4 tokens in a prompt of 3 ids"),
        ("other ids", "expected ids below 320"),
    ],
)
def test_a_server_of_no_use_is_refused(llama: Path, wrong: str, told: str, capsys: pytest.CaptureFixture[str]):
    with serving(Oracle(read_program(llama), 0), wrong) as url:
        assert run(["tracer", "run", "--url", url, "--checkpoint", str(llama)]) == 2
    assert told in capsys.readouterr().err


def test_the_engine_accepts_what_it_must(llama: Path, tmp_path: Path):
    options = ["tracer", "run", "--checkpoint", str(llama), *OPTIONS, "--case", str(tmp_path / "case.json")]
    assert run([*options, "--subject", "engine", "--dtype", "bfloat16", "--json", str(tmp_path / "out.json")]) == 0
    report = json.loads((tmp_path / "out.json").read_text())
    assert 0 < report["compared"] < report["rounds"]


def test_wrong_usage_is_told(llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = tmp_path / "case.json"
    other.write_text('{"session": {"requests": [{"prompt": [256], "count": 1}]}, "program": "x", "width": 0}')
    for options, told in (
        ([], "nothing to test: expected --url, or --subject"),
        (["--url", "http://127.0.0.1:9", "--subject", "engine"], "invalid --subject with --url"),
        (["--url", "http://127.0.0.1:9"], "expected a server that answers there"),
        (["--subject", "engine", "--checkpoint", str(tmp_path)], "expected the program of a tracer checkpoint"),
        (["--subject", "engine", "--longest", "5000"], "expected at most"),
        (["--subject", "engine", "--drafts", "0"], "invalid --drafts 0"),
        (["--subject", "engine", "--dtype", "int8"], "invalid --dtype 'int8'"),
        (["--subject", "engine", "--replay", str(tmp_path / "none")], "it cannot be read"),
        (["--subject", "engine", "--replay", str(other)], "expected a case of this --checkpoint"),
    ):
        assert run(["tracer", "run", "--checkpoint", str(llama), *options]) == 2
        assert told in capsys.readouterr().err


def test_sessions_are_as_asked():
    program = generated(0, 512)
    drawn = list(sessions(program, 0, 40, 200, 16))
    assert drawn == list(sessions(program, 0, 40, 200, 16))
    asked = [one for session in drawn for one in session.requests]
    assert len(asked) >= 40
    assert max(len(one.prompt) for one in asked) <= 200
    assert any(one.stops for one in asked)
    assert any(one.wave for one in asked)
    assert all(isinstance(session, Session) for session in drawn)
