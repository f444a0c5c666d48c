"""`verify.steered`: what was asked for is what was verified, though script and reference agree on something else."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec.structs import replace as put

from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.contracts.registry import find
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.judge import judge
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import WRONG, RoundPlan, Scenario
from draftproof.properties.values.script import RequestScript
from draftproof.properties.values.trace import Key, Observation
from draftproof.properties.values.verdict import Divergence
from draftproof.reference import request_solver as solving
from tests.properties.breaking import with_value
from tests.properties.evidence import ADAPTIVE, STATIC, evidence
from tests.properties.ideal import IdealSubject

STEERED = find("verify.steered")


def found(of: Evidence) -> Divergence | None:
    assert STEERED.applies(of)
    return next(iter(STEERED.check(of)), None)


def planned(scenario: Scenario, *plans: RoundPlan, **request: object) -> Evidence:
    """The scenario with these plans for all requests, run."""
    requests = tuple(put(one, rounds=plans, **request) for one in scenario.requests)
    return lockstep(IdealSubject(), put(scenario, requests=requests))


def changed(of: Evidence, channel: str, key: Key, value: object) -> Evidence:
    """The subject's trace with one value changed."""
    made = with_value(of, channel, key, value)  # type: ignore[arg-type]
    assert made.subject.observations != of.subject.observations
    return made


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("scenario", [STATIC, ADAPTIVE], ids=["static", "dynamic"])
def test_every_way_to_be_wrong_is_what_was_asked_for(scenario: Scenario, wrong: str):
    plans = (
        RoundPlan(num_drafts=3, num_correct=0, wrong=wrong),  # type: ignore[arg-type]
        RoundPlan(num_drafts=3, num_correct=1, wrong=wrong),  # type: ignore[arg-type]
        RoundPlan(num_drafts=2, num_correct=-1),
    )
    assert found(planned(scenario, *plans, stops=(40, 39))) is None
    assert found(planned(scenario, *plans, stop_at=6)) is None


def first_wish(script: RequestScript, _round: int, emitted: int, drafts: int) -> tuple[int, ...] | None:
    """`script.forced`, broken so that the first wish always applies."""
    chain = script.chains[emitted - 1][0]
    return chain and chain[:drafts]


def first_plan(request: object, _round: int) -> RoundPlan:
    return request.rounds[0]  # type: ignore[attr-defined]


def first_wrong(of: object, _number: int, _kind: str) -> int:
    return 7


@pytest.mark.parametrize(
    ("scenario", "where", "name", "broken"),
    [
        (ADAPTIVE, solving, "forced", first_wish),
        (STATIC, solving, "round_plan", first_plan),
        (STATIC, solving.RequestSolver, "_wrong", first_wrong),
        (STATIC, solving.RequestSolver, "_after_wrong", lambda _self, _number, wrong: wrong),
    ],
    ids=["the first wish applies", "the first plan applies", "one token is wrong", "no match behind the mismatch"],
)
def test_a_script_that_is_broken_for_both_sides_is_noticed(
    monkeypatch: pytest.MonkeyPatch, scenario: Scenario, where: object, name: str, broken: Callable[..., object]
):
    monkeypatch.setattr(where, name, broken)
    of = lockstep(IdealSubject(), scenario)
    judged = judge(of)
    failed = {contract for contract, divergence in judged.results.items() if divergence}
    counted = {one for one in failed if one.startswith(("adaptive_steps.", "launch.")) or one.endswith(".discarded")}
    # Engine and reference agree: only who looks at the plan again can tell, or at the number of drafts.
    assert failed - counted == {"verify.steered"}


def forced_round(of: Evidence) -> tuple[int, int]:
    """A round of three drafts of which one is right."""
    return next(key[:2] for key, value in of.subject.typed("accept.correct_len", int).items() if value == 1)


def own_round(of: Evidence) -> Key:
    """A round that verifies the draft's own proposals."""
    return next(
        key
        for key, tokens in of.subject.channel("propose.tokens").items()
        if tokens and of.script.requests[key.request].rounds[key.round - 1].forced is None
    )


def test_a_hand_made_wrong_trace_is_told_by_what_is_wrong_in_it():
    of = planned(STATIC, RoundPlan(num_drafts=3, num_correct=1, wrong="next"))
    request, number = forced_round(of)
    ids = of.subject.typed("verify.ids", int)
    for row in (1, 2, 3):
        key = Key(request, number, row=row)
        if key in ids:
            divergence = found(changed(of, "verify.ids", key, ids[key] + 2))
            assert divergence is not None
            assert (divergence.channel, divergence.key) == ("verify.ids", key)
    key = Key(request, number)
    divergence = found(changed(of, "accept.correct_len", key, 2))
    assert divergence is not None
    assert (divergence.channel, divergence.expected, divergence.got) == ("accept.correct_len", "1", "2")


def test_what_is_not_forced_is_the_drafts_own():
    of = planned(STATIC, RoundPlan(num_drafts=3, num_correct=-1))
    key = own_round(of)
    tokens = of.subject.typed("propose.tokens", tuple)[key]
    divergence = found(changed(of, "propose.tokens", key, (tokens[0] + 1, *tokens[1:])))
    assert divergence is not None
    assert (divergence.channel, divergence.row) == ("verify.ids", 1)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_round_with_fewer_drafts_than_it_may_have_is_noticed(kept: int):
    of = planned(STATIC, RoundPlan(num_drafts=2, num_correct=2))
    request, number = next(key[:2] for key, value in of.subject.typed("accept.correct_len", int).items() if value == 2)

    def is_dropped(one: Observation) -> bool:
        at = one.key
        return one.channel.startswith("verify.") and at[:2] == (request, number) and at.row > kept

    observations = tuple(one for one in of.subject.observations if not is_dropped(one))
    divergence = found(replace(of, subject=replace(of.subject, observations=observations)))
    assert divergence is not None
    assert (divergence.expected, divergence.got) == ("2 drafts", f"{kept} drafts")


def test_the_ideal_run_is_steered():
    for scenario in (STATIC, ADAPTIVE):
        assert found(evidence(scenario=scenario)) is None


def test_a_subject_that_chooses_the_number_of_drafts_may_have_more():
    """Three where a plan wants one: right of a subject whose drafts nobody steers, and of no other (S-FOLLOW-7)."""
    of = planned(STATIC, RoundPlan(num_drafts=3, num_correct=-1))
    fewer = (RoundPlan(num_drafts=1, num_correct=-1),)
    asked = put(of.scenario, requests=tuple(put(one, rounds=fewer) for one in of.scenario.requests))
    divergence = found(replace(of, scenario=asked))
    assert divergence is not None
    assert divergence.expected == "1 drafts"
    assert found(replace(of, scenario=asked, limits=Limits(steering="none"))) is None


def test_a_fixed_number_of_drafts_is_no_other():
    """Near its limits the ideal subject has fewer."""
    of = planned(STATIC, RoundPlan(num_drafts=3, num_correct=-1))
    divergence = found(replace(of, limits=Limits(fixed_drafts=3)))
    assert divergence is not None
    assert divergence.expected == "3 drafts"
    assert found(of) is None
