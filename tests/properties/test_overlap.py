"""A host that plans a step while the one before runs, and processes its results a step late (S-OVERLAP)."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.contracts.registry import ALL, find
from draftproof.properties.coverage.counts import counts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.overlap import Overlap
from draftproof.properties.formats.case import decode
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.validate import validate
from draftproof.properties.values.delays import Delay
from draftproof.properties.values.observed import SharedUse, TokenIds
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.trace import Key, Observation
from draftproof.reference.adaptive_steps import steps_in_force
from tests.properties.breaking import edited, ran, with_value
from tests.properties.evidence import (
    ADAPTIVE,
    OF_DRAFTS,
    OVERLAPPED,
    STATIC,
    by_engine,
    with_observations,
)

LATE: tuple[Delay, ...] = ("late",)
EACH = (LATE, ("early",), ("none",), ("late", "none"), ("early", "late", "late"))


def behind(scenario: Scenario, overlap: tuple[Delay, ...] = LATE) -> Scenario:
    """Return the scenario with a host that is a step behind."""
    return replace(scenario, schedule=replace(scenario.schedule, overlap=overlap, services=1))


@pytest.mark.parametrize("overlap", EACH, ids=" ".join)
def test_every_delay_gives_the_same_texts(overlap: tuple[Delay, ...]) -> None:
    of = ran(behind(STATIC, overlap))
    assert of.subject.texts == lockstep(EngineSubject(), STATIC).subject.texts


def test_pages_that_a_window_freed_are_free_while_a_round_waits_for_tokens() -> None:
    """A prompt has ended in a step that was waited for, and the next has no tokens for its tree."""
    path = Path(__file__).parent / "overlapped_waiting_round.json"
    assert judge(ran(decode(path.read_text(encoding="utf-8"), Scenario))).passed


def test_a_text_that_is_returned_in_another_order_is_another_text() -> None:
    of = ran(behind(STATIC, EACH[0]))
    places = [
        at
        for at, one in enumerate(of.subject.observations)
        if one.channel == "accept.emitted" and one.key.request == 0 and one.key.round in (1, 2)
    ]
    swapped = list(of.subject.observations)
    first, second = places
    swapped[first], swapped[second] = swapped[second], swapped[first]
    assert [one.name for one in ALL if one.applies(of) and one.check(with_observations(of, tuple(swapped)))] == [
        "output.lossless"
    ]


@pytest.mark.parametrize("draft", [name for name in OF_DRAFTS if name != "ngram"])
def test_every_draft_that_the_device_makes_can_be_behind(draft: str) -> None:
    of = ran(replace(behind(OF_DRAFTS[draft], ("late", "early", "none")), variant="unoverlapped"))
    assert counts(of)["variant_unoverlapped"] == 1
    assert counts(of)["overlapped_steps"] > 0


def test_works_that_are_late_and_early_are_the_same_to_the_host() -> None:
    late, early = (ran(behind(STATIC, overlap)).subject for overlap in (("late",), ("early",)))
    for channel in ("round.rows", "round.table", "accept.emitted", "commit.length", "overlap.buffers", "pool.owners"):
        assert late.channel(channel) == early.channel(channel)


def test_a_host_that_waits_for_every_step_runs_nothing_after_an_end() -> None:
    of = ran(behind(STATIC, ("none",)))
    assert not of.discarded
    assert counts(of)["overlap_waits"] == len({row.step for row in of.schedule.rows})


STOPPED = replace(STATIC, requests=tuple(replace(one, stop_at=2) for one in STATIC.requests))
"""Requests that end by a token, which nobody can know in time."""


def test_who_has_ended_runs_once_more_and_gives_its_pages_back_then() -> None:
    of = ran(behind(STOPPED))
    ended = Overlap(of).ended_at
    assert {key.request for key in of.discarded} == set(ended)
    for key in of.discarded:
        row = next(row for row in of.schedule.rows if (row.request, row.round) == key[:2])
        assert row.step == ended[key.request] + 1
        assert of.schedule.spans[key.request][1] == row.step + 1
        assert key not in of.subject.channel("accept.emitted")


def test_an_end_that_is_certain_has_no_round_behind_it() -> None:
    requests = tuple(replace(one, budget=1 + index) for index, one in enumerate(STATIC.requests))
    of = ran(behind(replace(STATIC, requests=requests)))
    assert [of.plans.is_sure_to_end(request) for request in (0, 1)] == [True, True]
    assert {key.request for key in of.discarded}.isdisjoint({0, 1})


def test_where_there_is_no_position_left_the_round_is_padding() -> None:
    """A request that is cut by max_len within what it accepted: its length is max_len then."""
    found = set[int]()
    for max_len in range(12, 17):
        memory = replace(STATIC.memory, max_len=max_len)
        of = ran(behind(replace(STATIC, memory=memory, requests=STATIC.requests[1:2])))
        found |= {one.drafts for one in of.discarded.values()}
    assert -1 in found


def test_a_round_that_ends_a_request_commits_all_that_it_accepted() -> None:
    of = ran(behind(STOPPED))
    emitted = of.subject.typed("accept.emitted", TokenIds)
    lengths, texts = of.subject.typed("commit.length", int), of.subject.texts
    last = {key.request: key for key in sorted(emitted)}
    over = [
        lengths[key] - (len(of.scenario.requests[request].prompt) + len(texts[request]) - 1)
        for request, key in last.items()
    ]
    assert min(over) >= 0
    assert max(over) > 0
    assert not {"commit.final", "commit.unfolded"} & of.subject.channels


def test_a_controller_decides_a_step_late() -> None:
    batches = [[(3, 3)], [(3, 0)], [(1, 1)], [(1, 1)]]
    adaptive = replace(ADAPTIVE, schedule=replace(ADAPTIVE.schedule, overlap=()))
    known = [one.steps for one in steps_in_force(adaptive, batches)]
    late = [one.steps for one in steps_in_force(behind(adaptive), batches)]
    assert late == [known[0], *known[:-1]]
    apart = [one.steps for one in steps_in_force(behind(adaptive), batches, (0, 2, 4, 6))]
    assert apart == known, "where nothing is in flight, nothing is unknown"


def test_controllers_and_limits_of_batches_are_judged_behind_too() -> None:
    of = ran(behind(replace(ADAPTIVE, variant="none"), ("late", "late", "none")))
    assert of.subject.channel("adaptive_steps.steps")
    assert counts(of)["overlapped_steps"] > 0


def _uses(of: Evidence) -> list[tuple[int, Observation]]:
    return [(at, one) for at, one in enumerate(of.subject.observations) if one.channel == "overlap.buffers"]


def _with_use(of: Evidence, at: int, **change: int) -> Evidence:
    observations = list(of.subject.observations)
    value = observations[at].value
    assert isinstance(value, SharedUse)
    observations[at] = observations[at]._replace(value=replace(value, **change))
    return with_observations(of, observations)


def test_a_dropped_event_is_noticed_where_the_device_was_early_too() -> None:
    """The host reads results that are there, as it happens, and has not waited for them."""
    of = ran(behind(STATIC, ("early",)))
    contract = find("overlap.buffers")
    for at, use in _uses(of):
        value = use.value
        assert isinstance(value, SharedUse)
        if value.side == 0 and value.waited == value.work:
            found = list(contract.check(_with_use(of, at, waited=value.waited - 1)))
            assert [one.channel for one in found] == ["overlap.buffers"]


def test_every_other_use_of_a_buffer_is_noticed() -> None:
    of, contract = by_engine(OVERLAPPED), find("overlap.buffers")
    for at, _ in _uses(of)[::3]:
        for field in ("kind", "place", "side", "work", "waited"):
            value = getattr(of.subject.observations[at].value, field)
            other = _with_use(of, at, **{field: (value + 1) % 2 if field in ("place", "side") else value + 1})
            assert list(contract.check(other)), field


def test_a_buffer_that_is_filled_again_before_it_is_read_is_noticed() -> None:
    """As if there were one of each kind: what the trace says of the rest is as it has to be."""
    of = ran(behind(STATIC, ("early",)))
    one = edited(of, "overlap.buffers", lambda _, use: replace(use, place=0))
    found = list(find("overlap.buffers").check(one))
    assert [(d.channel, type(d.relation).__name__) for d in found if d] == [("overlap.buffers", "OutOfOrder")]


def test_a_page_too_few_is_noticed() -> None:
    of = by_engine(OVERLAPPED)
    tables = of.subject.typed("round.table", int)
    last = {key[:2]: key for key in sorted(tables) if key.round}
    contract = find("overlap.pages")
    for key in list(last.values())[::3]:
        assert list(contract.check(with_value(of, "round.table", key, None)))


def test_who_rests_or_runs_on_is_noticed() -> None:
    of, contract = by_engine(OVERLAPPED), find("overlap.schedule")
    for key in of.discarded:
        without = edited(of, "round.rows", lambda *_: None, lambda one, key=key: one[:2] == key[:2])
        assert list(contract.check(without)), "it had to run once more"
        again = [o for o in of.subject.observations if (o.channel, o.key[:2]) == ("round.rows", key[:2])]
        more = [
            o._replace(key=o.key._replace(round=o.key.round + 1), value=replace(o.value, step=o.value.step + 1))  # type: ignore[union-attr, arg-type]
            for o in again
        ]
        assert list(contract.check(with_observations(of, (*of.subject.observations, *more)))), "and not twice"


def test_what_is_discarded_says_nothing_else() -> None:
    of = by_engine(OVERLAPPED)
    assert of.discarded
    told = {"round.rows", "round.table", "round.state", "overlap.discarded"}
    for key in of.discarded:
        assert {o.channel for o in of.subject.observations if o.key[:2] == key[:2]} <= told


@pytest.mark.parametrize(
    ("scenario", "sentence"),
    [
        (replace(STATIC, variant="unoverlapped"), "variant unoverlapped: expected another one, or none, without"),
    ],
)
def test_what_cannot_be_compared_is_refused(scenario: Scenario, sentence: str) -> None:
    with pytest.raises(InvalidScenarioError, match=f"invalid {sentence}"):
        validate(scenario)


def test_what_runs_after_an_end_is_counted_and_buffers_are_told_from_the_first_step() -> None:
    assert counts(by_engine(OVERLAPPED))["overlap_rounds_after_end"] == len(by_engine(OVERLAPPED).discarded)
    assert Key(-1, 0, step=0) in by_engine(OVERLAPPED).subject.channel("overlap.buffers")
