"""`draftproof lab bisect parts`: what it says and ends with, and its workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftproof.cli import parts as command
from draftproof.cli.inputs import Ended
from draftproof.fuzz.bisect import search
from draftproof.harness.workers.messages import Answer, Order
from draftproof.properties.formats.case import encode
from draftproof.properties.values.verdict import Outcome
from tests.cli.pools import FAILS, GONE, Answering, found_with, pool_of
from tests.named import named

SCENARIO = named("hybrid_replay")
USED = ("gdn_verify", "greedy_accept", "kv_write", "rope")


@pytest.fixture
def case(tmp_path) -> Path:
    path = tmp_path / "case.json"
    path.write_text(encode(SCENARIO), encoding="utf-8")
    return path


@pytest.fixture
def answers(monkeypatch):
    def use(answering: Answering) -> type:
        made = pool_of(answering)
        monkeypatch.setattr(search, "Pool", made)
        monkeypatch.setattr(search, "kernels_used", lambda *_: USED)
        return made

    return use


def parts(case: Path, **options) -> int:
    with pytest.raises(Ended) as ended:
        command.parts(case, workers=2, **options)
    return ended.value.code


def kernel_in_a_graph(order: Order) -> Answer:
    return FAILS if order.scenario.graphs.capture and "gdn_verify" not in order.twins else GONE


def test_the_parts_that_it_takes_are_told(case, answers, capsys):
    made = answers(kernel_in_a_graph)
    report = case.with_name("report.json")
    assert parts(case, json=report) == 0
    out = capsys.readouterr().out
    for told in (
        "It takes: graphs + kernel gdn_verify.",
        "Not needed together: greedy_accept, kv_write, rope.",
        "Stays on: taps; without them draft.positions has nothing to judge.",
        "where      draft step 1, request 0, round 1",
        "got        position 6 (one ahead)",
        f"FAIL. Again: draftproof lab bisect parts {case} --device cpu",
    ):
        assert told in out
    found = json.loads(report.read_text())["found"]
    assert found["needed"] == ["graphs", "kernel gdn_verify"]
    assert {part["name"]: part["alone"] for part in found["parts"]}["graphs"] == "gone"
    assert made.open == []


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.INCONCLUSIVE])
def test_a_case_that_does_not_fail(case, answers, capsys, outcome):
    answers(lambda *_: Answer(number=0, outcome=outcome))
    assert parts(case) == 125
    assert f"does not fail: {outcome}" in capsys.readouterr().out


def test_a_case_that_does_not_fail_without_its_fault(case, answers, capsys):
    answers(lambda *_: Answer(number=0, outcome=Outcome.PASS))
    found_with("pages-leak-on-finish", case)
    assert parts(case) == 125
    assert capsys.readouterr().out.startswith("found with --fault pages-leak-on-finish; this run is without it\n")


def test_a_case_that_fails_once(case, answers, capsys):
    once = iter((FAILS,))
    answers(lambda *_: next(once, GONE))
    assert parts(case) == 125
    assert "is FLAKY" in capsys.readouterr().out


def test_our_own_error_is_raised(case, answers):
    answers(lambda *_: Answer(number=0, outcome=Outcome.ERROR, detail="what happened"))
    with pytest.raises(RuntimeError, match="what happened"):
        command.parts(case, workers=1)


def test_nothing_may_be_needed(answers, case, capsys):
    answers(lambda *_: FAILS)
    assert parts(case) == 0
    assert "It takes none of these parts: it fails with all of them off. (" in capsys.readouterr().out
