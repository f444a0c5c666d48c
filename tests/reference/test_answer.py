"""What would have been right for what a subject did: the reference follows that, and nothing else."""

import inspect
from dataclasses import fields, replace
from functools import cache

import pytest
from msgspec.structs import replace as put

from draftproof.engine.subject import EngineSubject
from draftproof.properties.evidence.observed_run import ObservedRun, read_run
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.observed import StepsInForce, TokenIds
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.trace import Key
from draftproof.properties.variants import varied
from draftproof.reference import answer as module
from draftproof.reference.answer import answer, answer_variant, follow
from draftproof.reference.solved import Solved, for_limits, solved
from tests.properties.evidence import ABORTED, ADAPTIVE, CACHED, OVERLAPPED, PREEMPTED, STATIC

OWN = put(STATIC, variant="other_commit")
"""A scenario of which the reference says something else under its variant."""

_PLANS = (put(STATIC.requests[1].rounds[0], num_drafts=3, num_correct=3),)
_STOPPED = put(STATIC.requests[0], rounds=_PLANS, stop_at=5, budget=12)
CUT = put(STATIC, requests=(_STOPPED, *STATIC.requests[1:]))
"""A request ends at a stop token in the middle of a round."""


@cache
def ran(scenario: Scenario) -> tuple[Solved, ObservedRun]:
    known = solved(scenario)
    return known, read_run(scenario, EngineSubject().run(scenario, known.script))


def forgotten(observed: ObservedRun, **changes: object) -> ObservedRun:
    return replace(observed, **changes)  # type: ignore[arg-type]


def test_who_did_what_was_expected_has_the_answer_that_was_known() -> None:
    known, observed = ran(STATIC)
    right = answer(known, observed)
    assert right.followed is known
    assert right.trace is known.trace
    assert right.script is known.script
    assert right.gaps == {}


def test_other_drafts_have_another_answer() -> None:
    known, observed = ran(STATIC)
    place = next(at for at, tokens in sorted(observed.drafts.items()) if len(tokens) > 1)
    other = ((observed.drafts[place][0] + 1) % STATIC.model.vocab, *observed.drafts[place][1:])
    right = answer(known, forgotten(observed, drafts={**observed.drafts, place: other}))
    round_ = right.script.requests[place[0]].rounds[place[1] - 1]
    assert round_.verified == other
    assert right.trace.typed("round.drafts", TokenIds)[Key(*place)] == other
    texts = {at: request.tokens for at, request in enumerate(known.script.requests)}
    assert right.trace.texts == texts, "greedy text depends on no draft"


@pytest.mark.parametrize("scenario", [ADAPTIVE, PREEMPTED, ABORTED], ids=["dynamic", "preempted", "aborted"])
def test_rounds_are_those_that_ran(scenario: Scenario) -> None:
    known, observed = ran(scenario)
    right = answer(known, observed)
    assert right.trace.texts == observed.texts
    rounds = {
        (request, number): round_
        for request, of_request in enumerate(right.script.requests)
        for number, round_ in enumerate(of_request.rounds, start=1)
    }
    assert {at for at, round_ in rounds.items() if round_.resumed} == observed.batches.resumed
    assert {at: round_.num_verified for at, round_ in rounds.items()} == {
        at: len(tokens) for at, tokens in observed.drafts.items()
    }
    ended = {at: request.ended for at, request in enumerate(right.script.requests) if request.aborted}
    assert ended.items() <= observed.batches.ended.items()


def test_the_steps_in_force_are_those_of_the_batches() -> None:
    known, observed = ran(ADAPTIVE)
    told = answer(known, observed).trace.typed("adaptive_steps.steps", StepsInForce)
    assert {key.round for key in told} == {step for step, _ in observed.batches.rows.values()}
    unknown = answer(known, forgotten(observed, batches=replace(observed.batches, rows={})))
    assert not unknown.trace.channel("adaptive_steps.steps")


def test_rows_that_a_cache_served_are_left_out() -> None:
    known, observed = ran(CACHED)
    assert any(observed.cached.values())
    served, all_rows = answer(known, observed).trace, answer(known, forgotten(observed, cached={})).trace
    for channel in ("extend.ids", "extend.positions", "extend.hidden_in"):
        left_out = all_rows.channel(channel).keys() - served.channel(channel).keys()
        assert left_out
        assert all(key.row < observed.cached[key[:2]] for key in left_out)


def test_rows_that_a_subjects_own_cache_served_are_left_out() -> None:
    """It may serve a prefix where the scenario asks for no cache (S-SCHED-5)."""
    known, observed = ran(STATIC)
    served = forgotten(observed, cached={(1, 0): 2})
    own, none = (answer(known, served, Limits(own_prefix_cache=has)).trace for has in (True, False))
    left_out = none.channel("extend.ids").keys() - own.channel("extend.ids").keys()
    assert {(key.request, key.round, key.row) for key in left_out} == {(1, 0, 0), (1, 0, 1)}
    assert own.channel("extend.kv").keys() == none.channel("extend.kv").keys()


def test_an_uncut_end_is_followed() -> None:
    known, observed = ran(CUT)
    cut, uncut = (answer(known, observed, Limits(finish=finish)).trace for finish in ("cut", "uncut"))  # type: ignore[arg-type]
    assert cut.texts == uncut.texts
    assert cut.channel("commit.length") != uncut.channel("commit.length")


def test_who_chooses_its_drafts_has_as_many_as_it_verified() -> None:
    known, observed = ran(STATIC)
    place = next(at for at, tokens in sorted(observed.drafts.items()) if len(tokens) > 1)
    fewer = forgotten(observed, drafts={**observed.drafts, place: observed.drafts[place][:1]})
    told, chosen = (follow(known, fewer, Limits(steering=steering)) for steering in ("drafts", "none"))  # type: ignore[arg-type]
    asked, own = (one.script.requests[place[0]].rounds[place[1] - 1] for one in (told, chosen))
    assert (asked.drafts, asked.num_verified) == (len(observed.drafts[place]), 1)
    assert (own.drafts, own.num_verified) == (1, 1)


def test_drafts_with_the_prompt_have_a_script_of_their_own() -> None:
    known = solved(STATIC)
    assert for_limits(known, Limits()) is known
    late = for_limits(known, Limits(first_drafts="with prompt"))
    assert late.trace is known.trace
    assert all(request.chains for request in late.script.requests)
    dynamic = solved(ADAPTIVE)
    assert for_limits(dynamic, Limits(first_drafts="with prompt")) is dynamic


def test_a_variant_that_changes_nothing_has_the_answer_of_the_base_run() -> None:
    scenario = put(STATIC, variant="other_batches")
    known, observed = ran(scenario)
    right = answer(known, observed)
    other = read_run(scenario, EngineSubject().run(varied(scenario), known.script))
    assert answer_variant(known, right, observed, other).trace is right.trace


@pytest.mark.parametrize("scenario", [OWN, put(OVERLAPPED, variant="unoverlapped")])
def test_a_variant_of_which_something_else_is_right_has_an_answer_of_its_own(scenario: Scenario) -> None:
    known, observed = ran(scenario)
    right = answer(known, observed)
    other = read_run(scenario, EngineSubject().run(varied(scenario), known.script))
    of_variant = answer_variant(known, right, observed, other)
    assert of_variant.trace is right.followed.varied
    assert of_variant.trace.texts == right.trace.texts
    assert of_variant.trace.observations != right.trace.observations


def test_a_variant_run_that_verified_something_else_is_followed_in_the_batches_of_the_base_run() -> None:
    scenario = put(ADAPTIVE, variant="other_batches")
    known, observed = ran(scenario)
    right = answer(known, observed)
    place = next(at for at, tokens in sorted(observed.drafts.items()) if tokens)
    drafts = {**observed.drafts, place: ((observed.drafts[place][0] + 1) % 41, *observed.drafts[place][1:])}
    other = forgotten(observed, drafts=drafts, batches=replace(observed.batches, rows={}))
    of_variant = answer_variant(known, right, observed, other)
    assert of_variant.script != right.script
    steps, base = (one.trace.typed("adaptive_steps.steps", StepsInForce) for one in (of_variant, right))
    assert steps.keys() == base.keys()


def test_no_function_takes_a_trace_of_a_subject() -> None:
    """All that is known of a subject is the value that was read: it has no trace in it."""
    for function in (answer, answer_variant, follow):
        assert inspect.getmodule(function) is module
        assert "Trace" not in {str(one.annotation) for one in inspect.signature(function).parameters.values()}
    assert not [one.name for one in fields(ObservedRun) if "Trace" in str(one.type)]
