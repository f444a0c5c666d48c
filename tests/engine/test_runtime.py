"""Runtimes: the engine goes to and fro between widths, and graphs captured at once are those captured when needed."""

from dataclasses import replace as swapped
from itertools import pairwise

import pytest
from msgspec.structs import replace

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.contracts.registry import find
from draftproof.properties.judge import judge
from draftproof.properties.values.observed import GRAPHED, DiscardedRows, LaunchKind, LaunchRecord, LaunchWork, WriteSet
from draftproof.properties.values.relations import OffBy
from draftproof.properties.values.scenario import Graphs, Scenario
from draftproof.properties.values.trace import Trace
from draftproof.reference.solved import solved
from tests.properties.evidence import ADAPTIVE, STATIC, with_observations

SIZES = (1, 2, 3)
RUNS = {"snapshot": STATIC, "replay and adaptive steps": ADAPTIVE}
DISCARDED = ("draft.discarded", "verify.discarded", "extend.discarded")
OF_LAUNCHES = ("graph.replay", "graph.work", "commit.written", *DISCARDED)


def graphs(scenario: Scenario, *, at_start: bool = False) -> Scenario:
    return replace(scenario, graphs=Graphs(sizes=SIZES, at_start=at_start))


def trace(scenario: Scenario) -> Trace:
    return EngineSubject().run(scenario, solved(scenario).script)


def launches(ran: Trace) -> list[tuple[int, LaunchRecord, LaunchWork, WriteSet]]:
    """Engine step, record, work and written places of every launch but captures, in order."""
    records, written = ran.typed("graph.replay", LaunchRecord), ran.typed("commit.written", WriteSet)
    work = ran.typed("graph.work", LaunchWork)
    of_batches = (key for key, record in sorted(records.items()) if record.kind != LaunchKind.CAPTURE)
    return [(key.round, records[key], work[key], written[key]) for key in of_batches]


def discarded(ran: Trace) -> list[tuple[int, DiscardedRows]]:
    """Return engine step and discarded rows of every launch that has some, by kind and in order."""
    return [(key.round, rows) for channel in DISCARDED for key, rows in sorted(ran.typed(channel, tuple).items())]


def captures(ran: Trace) -> list[tuple[int, int, int]]:
    """Engine step, size and width of every capture, in order."""
    found = sorted(ran.typed("graph.replay", LaunchRecord).items())
    return [(key.round, one.size, one.width) for key, one in found if one.kind == LaunchKind.CAPTURE]


@pytest.mark.parametrize("scenario", RUNS.values(), ids=RUNS)
def test_graphs_captured_at_once_leave_the_same_trace(scenario: Scenario) -> None:
    lazily, at_once = trace(graphs(scenario)), trace(graphs(scenario, at_start=True))
    assert at_once.channels == lazily.channels
    for channel in at_once.channels.difference(OF_LAUNCHES):
        assert at_once.channel(channel) == lazily.channel(channel), channel
    assert launches(at_once) == launches(lazily)
    assert discarded(at_once) == discarded(lazily)
    assert any(record.size for _, record, _, _ in launches(lazily))


@pytest.mark.parametrize("scenario", RUNS.values(), ids=RUNS)
def test_warm_up_captures_every_size_of_every_width_once_and_writes_nothing(scenario: Scenario) -> None:
    ran = trace(graphs(scenario, at_start=True))
    # Without drafts nothing is proposed: two graphs instead of three.
    counts = scenario.adaptive_steps.steps if scenario.adaptive_steps else (scenario.steps,)
    widths = [1, 1, *(steps + 1 for steps in counts for _ in range(3))]
    assert captures(ran) == [(-1, size, width) for size in sorted(SIZES, reverse=True) for width in widths]
    written = ran.channel("commit.written")
    records = ran.typed("graph.replay", LaunchRecord)
    of_captures = [key for key, record in records.items() if record.kind == LaunchKind.CAPTURE]
    assert {written[key] for key in of_captures} == {()}


@pytest.mark.parametrize("change", [{"size": 4}, {"width": 9}, {"kind": LaunchKind.VERIFY}, None])
def test_a_graph_that_was_not_captured_at_the_start_is_missed(change: dict[str, int] | None) -> None:
    of, contract = lockstep(EngineSubject(), graphs(STATIC, at_start=True)), find("launch.captures")
    assert contract.check(of) == []
    told = list(of.subject.observations)
    at = max(place for place, one in enumerate(told) if one.channel == "graph.replay" and one.key.round < 0)
    told[at : at + 1] = [told[at]._replace(value=replace(told[at].value, **change))] if change else []  # type: ignore[type-var]
    assert [one.key.round for one in contract.check(with_observations(of, told))] == [-1]


def test_graphs_are_captured_at_the_start_or_in_steps_as_they_are_to_be() -> None:
    contract, contrary = find("launch.captures"), {"graphs": Graphs(sizes=SIZES)}
    late, early = (lockstep(EngineSubject(), graphs(STATIC, at_start=one)) for one in (False, True))
    assert contract.check(late) == contract.check(early) == []
    assert contract.check(swapped(early, scenario=replace(early.scenario, **contrary)))
    found = contract.check(swapped(late, scenario=early.scenario))
    assert [(one.key.round, one.relation) for one in found] == [(-1, OffBy(-2))]


def test_captures_that_wait_are_made_for_what_is_needed_and_once() -> None:
    made = captures(trace(graphs(ADAPTIVE)))
    assert {width for _, _, width in made} == {1, 2, 4}
    assert min(step for step, _, _ in made) >= 1
    assert len(made) < len(SIZES) * (2 + 3 + 3)
    kinds = {1: 2, 2: 3, 4: 3}
    for size, width in {(size, width) for _, size, width in made}:
        assert sum(one[1:] == (size, width) for one in made) <= kinds[width]


@pytest.mark.parametrize("capture", [True, False], ids=["graphs", "padded, eager"])
def test_an_engine_that_switches_between_widths_holds_every_contract(capture: bool) -> None:
    case = replace(ADAPTIVE, graphs=Graphs(sizes=(2,), capture=capture))
    of = lockstep(EngineSubject(), case)
    assert judge(of).first is None
    widths = {kind: {one.width for one in of.schedule.launches if one.kind == kind} for kind in GRAPHED}
    assert widths == {LaunchKind.DRAFT: {2, 4}, LaunchKind.VERIFY: {1, 2, 4}, LaunchKind.EXTEND: {1, 2, 4}}
    in_order = [one.width for one in of.schedule.launches if one.kind == LaunchKind.VERIFY]
    switches = set(pairwise(in_order))
    assert {(2, 4), (4, 2)} <= switches or {(2, 4), (4, 1), (1, 2)} <= switches
