"""`tracer run` says PASS only where the accepted drafts that it was to compare were compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli.app import run
from draftproof.properties.formats.case import encode
from draftproof.tracer import runs
from draftproof.tracer.build import build
from draftproof.tracer.checkpoint import architecture_of, draft_name
from draftproof.tracer.explain import JudgedRequest
from draftproof.tracer.generate import generated
from draftproof.tracer.program import read_program
from draftproof.tracer.runs import TracerCase, identity, judge
from draftproof.tracer.sessions import Asked, Session, TracerAnswer
from draftproof.tracer.simulated import Drafting
from tests.tracer.fake_engine import Oracle, serving
from tests.warm import Warm

WIDTH = 3
FAULT = "draft-positions-advanced-early"
SERVED = ["--requests", "8", "--longest", "40", "--tokens", "10"]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("compared") / "llama"
    build(directory, "llama", "eagle", length=512)
    return directory


def came_to(checkpoint: Path, folder: Path, *options: str, warm: Warm | None = None) -> tuple[int, dict[str, Any]]:
    """Return the exit code of a run, in a process of its own if there is one, and its report."""
    path = folder / "out.json"
    files = ["--json", str(path), "--case", str(folder / "case.json"), "--seconds", "0"]
    words = ["tracer", "run", "--checkpoint", str(checkpoint), *options, *files]
    if warm is None:
        code = run(words)
    else:
        done = warm.run([sys.executable, "-P", "-m", "draftproof.cli", *words])
        code = done.returncode
    return code, json.loads(path.read_text())


def served(checkpoint: Path, folder: Path, does: str, *options: str) -> tuple[int, dict[str, Any]]:
    with serving(Oracle(read_program(checkpoint), WIDTH), does) as url:
        return came_to(checkpoint, folder, "--url", url, *SERVED, *options)


@pytest.mark.parametrize("tokens", ["1", "2"])
def test_no_draft_that_could_be_accepted_is_no_pass(
    llama: Path, tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    options = ["--subject", "engine", "--tokens", tokens, "--longest", "40", "--requests", "6"]
    code, report = came_to(llama, tmp_path, *options)
    assert (code, report["verdict"]) == (125, "INCONCLUSIVE")
    assert (report["compared"], report["rounds"], report["wrong"]) == (0, 0, 0)
    said = "accepted drafts were not compared: expected rounds that are told, and --tokens 3 or more, so that a draft"
    assert said in capsys.readouterr().out


def test_requests_and_rounds_are_counted_where_a_draft_could_be_accepted(
    llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, report = came_to(llama, tmp_path, "--subject", "engine", *SERVED)
    assert code == 0
    assert 0 < report["compared"] < report["requests"], "some ask for one token"
    assert report["rounds"] > report["compared"]
    told = f", accepted drafts of {report['compared']} in {report['rounds']} rounds; all right"
    assert told in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lengths", "told", "rounds"),
    [
        ((), {"lengths": ()}, 0),
        ((1,), {"lengths": (1,)}, 0),
        ((2,), {"lengths": (2,)}, 1),
        ((1, 1), {"lengths": (1, 1)}, 1),
        ((3, 1, 2), {"lengths": (3, 1, 2)}, 3),
        ((3, 1, 2), {"rounds": 3}, 3),
        ((3, 1, 2), {"accepted": 3}, 3),
        ((3, 1, 2), {}, 0),
    ],
)
def test_a_round_counts_where_two_tokens_are_left(
    monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, ...], told: dict[str, Any], rounds: int
):
    tokens = tuple(range(1 + sum(lengths)))
    monkeypatch.setattr(runs, "expected", lambda *_: TracerAnswer(tokens=tokens, lengths=lengths))
    one = JudgedRequest(Asked(prompt=(256,), count=len(tokens)), TracerAnswer(tokens=tokens, **told), is_wrong=False)
    program = generated(0, 512, "F", "eagle")
    assert runs.drafted_rounds(program, one, Drafting(WIDTH)) == rounds
    assert runs.drafted_rounds(program, one, Drafting(0)) == 0


@pytest.mark.parametrize("does", ["tells nothing", "tells of one token"])
def test_a_server_that_tells_no_rounds_of_the_drafts_that_were_named_is_no_pass(llama: Path, does: str, tmp_path: Path):
    code, report = served(llama, tmp_path, does, "--drafts", "3")
    assert (code, report["verdict"], report["compared"]) == (125, "INCONCLUSIVE", 0)
    code, report = served(llama, tmp_path, does)
    assert (code, report["verdict"], report["compared"]) == (0, "PASS", 0), "tokens alone were asked for"


def test_a_number_of_drafts_without_a_round_of_it_is_no_pass_of_any_endpoint(
    llama: Path, monkeypatch: pytest.MonkeyPatch
):
    program = read_program(llama)
    session = Session(requests=(Asked(prompt=(256, 1, 2), count=8),))
    silent = Oracle(program, WIDTH)
    answer = silent.serve
    monkeypatch.setattr(silent, "serve", lambda one: [TracerAnswer(tokens=said.tokens) for said in answer(one)])
    assert judge(silent, program, [session]).verdict == "INCONCLUSIVE"
    assert judge(silent, program, [session], needs_drafts=False).verdict == "PASS"
    assert judge(Oracle(program, 0), program, [session]).verdict == "PASS"
    assert judge(Oracle(program, 0), program, [session], needs_drafts=True).verdict == "INCONCLUSIVE"


@pytest.mark.parametrize("options", [[], ["--drafts", "0"]])
def test_rounds_that_nobody_asked_for_are_not_compared(llama: Path, options: list[str], tmp_path: Path):
    code, report = served(llama, tmp_path, "tells rounds", *options)
    assert (code, report["verdict"], report["compared"]) == (0, "PASS", 0)


def test_a_round_is_not_told_to_be_longer_than_its_drafts(llama: Path, tmp_path: Path):
    code, report = served(llama, tmp_path, "tells more than all", "--drafts", "3")
    assert (code, report["first"]["what"], report["first"]["got"]) == (1, "rounds", 100)


def test_accepted_drafts_in_another_form_are_an_error(llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with serving(Oracle(read_program(llama), WIDTH), "tells fractions") as url:
        options = ["tracer", "run", "--url", url, "--checkpoint", str(llama), *SERVED, "--drafts", "3"]
        assert run(options) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "answered metrics.speculative_decoding.per_step_accepted [0.0" in said
    assert "expected a list of whole numbers, each 0 or more" in said


@pytest.mark.parametrize(("count", "width", "code"), [(1, 3, 0), (1, 0, 0), (8, 3, 0)])
def test_a_case_is_served_again_as_it_was(llama: Path, count: int, width: int, code: int, tmp_path: Path):
    """Where no draft can be accepted in it, its tokens alone say whether it is mended."""
    case = tmp_path / "old.json"
    session = Session(requests=(Asked(prompt=(256, 1, 2), count=count),))
    one = TracerCase(session=session, program=identity(read_program(llama)), width=width)
    case.write_text(encode(one))
    assert came_to(llama, tmp_path, "--subject", "engine", "--replay", str(case))[0] == code


@pytest.mark.parametrize(
    ("architecture", "draft"),
    [("llama", "eagle3"), ("qwen3", "standalone"), ("qwen3.5", "mtp"), ("glm4-moe", "mtp"), ("qwen3-next", "eagle")],
)
def test_a_checkpoint_is_named_as_it_was_built(architecture: str, draft: str, tmp_path: Path):
    directory = tmp_path / "tracer"
    program = build(directory, architecture, draft, length=128).program
    assert (architecture_of(directory), draft_name(program, directory)) == (architecture, draft)


def test_a_report_says_of_what_it_is(llama: Path, tmp_path: Path, warm: Warm):
    options = ["--fault", FAULT, "--tokens", "1", "--requests", "3", "--longest", "20"]
    code, report = came_to(llama, tmp_path, *options, warm=warm)
    assert (code, report["verdict"]) == (125, "INCONCLUSIVE")
    assert [report[name] for name in ("architecture", "draft", "fault")] == ["llama", "eagle", FAULT]
    _, report = served(llama, tmp_path, "")
    assert [report[name] for name in ("architecture", "draft", "fault")] == ["llama", "eagle", ""]
