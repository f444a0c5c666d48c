"""The floor under every pattern of a round: too rare, or at other times than it was asked for."""

from pathlib import Path

import pytest

from draftproof.harness.check import Checker
from draftproof.properties.coverage import shares
from draftproof.properties.coverage.counts import counts
from draftproof.properties.coverage.facts import FACT_NAMES
from draftproof.properties.coverage.shares import LEAST, PATTERNS, Pattern
from draftproof.properties.values.verdict import Outcome
from draftproof.reference import request_solver as solving
from tests.properties.evidence import ADAPTIVE, STATIC, evidence
from tests.properties.ideal import IdealSubject
from tests.properties.test_steering import first_wish

# draftproof check --seed 7: rounds of 240 scenarios.
USUAL = {
    "scenarios": 240,
    "rounds": 2552,
    "rounds_without_drafts": 449,
    "planned_rounds": 2103,
    "rounds_with_wrong_drafts": 1049,
    "asked_none": 318,
    "asked_partial": 731,
    "asked_all": 776,
    "asked_own": 278,
    "forced_none": 318,
    "forced_partial": 731,
    "forced_all": 776,
    "unsteered_rounds": 278,
    "wrong_next": 195,
    "wrong_zero": 215,
    "wrong_last": 232,
    "wrong_stop": 198,
    "wrong_far": 209,
}


def test_the_usual_shares_pass():
    verdict = shares.verdict(USUAL)
    assert (verdict.name, verdict.verdict, verdict.scenarios) == ("oracle.shares", Outcome.PASS, 240)


def test_patterns_are_counted():
    assert {name for one in PATTERNS for name in (one.asked, one.of, one.came) if name} <= set(FACT_NAMES) | set(USUAL)


@pytest.mark.parametrize("one", PATTERNS, ids=lambda one: one.asked)
def test_a_pattern_below_its_share_is_no_pass(one: Pattern):
    many = {name: 10 * count for name, count in USUAL.items()}
    share = -(-many[one.of] * LEAST // 100)
    rare = many | ({one.came: share - 1} if one.came else {})
    assert shares.verdict(many | {one.asked: share} | ({one.came: share} if one.came else {})).missing == ()
    verdict = shares.verdict(rare | {one.asked: share - 1})
    assert verdict.verdict is Outcome.INCONCLUSIVE
    (missing,) = verdict.missing
    assert missing.startswith(f"{one.asked} in ")
    assert missing.endswith(f" % of {one.of} (expected at least {LEAST} %)")


def test_no_pattern_has_too_large_a_share():
    """One that leaves each of the others its least takes nothing from them."""
    least = dict.fromkeys(("asked_partial", "asked_all", "asked_own"), USUAL["planned_rounds"] // 30)
    came = {one.came: least[one.asked] for one in PATTERNS if one.asked in least}
    none = USUAL["planned_rounds"] - sum(least.values())
    assert shares.verdict(USUAL | least | came | {"asked_none": none, "forced_none": none}).missing == ()


def test_few_rounds_are_not_held_to_shares():
    few = {name: count // 5 for name, count in USUAL.items()}
    assert shares.verdict(few | {"wrong_far": 0, "rounds_without_drafts": 0}).verdict is Outcome.PASS


def test_what_came_up_is_what_was_asked_for():
    """Nothing that is compared shows a plan that both sides get wrong."""
    verdict = shares.verdict(USUAL | {"forced_none": 400, "forced_all": 694})
    assert verdict.verdict is Outcome.INCONCLUSIVE
    assert verdict.missing == (
        "forced_none 400 (expected the 318 of asked_none)",
        "forced_all 694 (expected the 776 of asked_all)",
    )


@pytest.mark.parametrize("scenario", [STATIC, ADAPTIVE], ids=["static", "dynamic"])
def test_a_right_run_gives_every_pattern_as_often_as_it_was_asked_for(scenario):
    counted = counts(evidence(scenario=scenario))
    assert counted["planned_rounds"] > 5
    assert all(counted[one.asked] == counted[one.came] for one in PATTERNS if one.came)


def test_a_script_that_always_forces_the_first_wish_is_no_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(solving, "forced", first_wish)
    report = Checker(IdealSubject(), cases=tmp_path).check([ADAPTIVE], 3)
    verdicts = {one.name: one for one in report.contracts}
    assert verdicts["verify.steered"].verdict is Outcome.FAIL
    assert verdicts["oracle.shares"].verdict is Outcome.INCONCLUSIVE
    assert any(one.startswith("forced_") for one in verdicts["oracle.shares"].missing)
