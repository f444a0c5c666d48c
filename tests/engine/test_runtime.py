"""Runtimes: the engine goes to and fro between widths, and graphs captured at once are those captured when needed."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from draftproof.engine.engine import Engine
from draftproof.engine.graphs.backend import Backend
from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.judge import judge
from draftproof.properties.values.observed import GRAPHED, DiscardedRows, LaunchKind, LaunchRecord, LaunchWork, WriteSet
from draftproof.properties.values.scenario import Graphs, Scenario
from draftproof.properties.values.trace import Trace
from draftproof.reference.solved import solved
from tests.properties.evidence import ADAPTIVE, STATIC

SIZES = (1, 2, 3)
RUNS = {"snapshot": STATIC, "replay and adaptive steps": ADAPTIVE}
DISCARDED = ("draft.discarded", "verify.discarded", "extend.discarded")
OF_LAUNCHES = ("graph.replay", "graph.work", "commit.written", *DISCARDED)


def graphs(scenario: Scenario) -> Scenario:
    return replace(scenario, graphs=Graphs(sizes=SIZES))


def trace(scenario: Scenario) -> Trace:
    return EngineSubject().run(scenario, solved(scenario).script)


@pytest.fixture
def warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines capture everything before their first step."""
    capture = Engine.capture

    def at_once(engine: Engine, backend: Backend) -> None:
        capture(engine, backend)
        engine.warm_up()

    monkeypatch.setattr(Engine, "capture", at_once)


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
def test_graphs_captured_at_once_leave_the_same_trace(scenario: Scenario, request: pytest.FixtureRequest) -> None:
    case = graphs(scenario)
    lazily = trace(case)
    request.getfixturevalue("warmed_up")
    at_once = trace(case)
    assert at_once.channels == lazily.channels
    for channel in at_once.channels.difference(OF_LAUNCHES):
        assert at_once.channel(channel) == lazily.channel(channel), channel
    assert launches(at_once) == launches(lazily)
    assert discarded(at_once) == discarded(lazily)
    assert any(record.size for _, record, _, _ in launches(lazily))


@pytest.mark.parametrize("scenario", RUNS.values(), ids=RUNS)
@pytest.mark.usefixtures("warmed_up")
def test_warm_up_captures_every_size_of_every_width_once_and_writes_nothing(scenario: Scenario) -> None:
    ran = trace(graphs(scenario))
    # Without drafts nothing is proposed: two graphs instead of three.
    counts = scenario.adaptive_steps.steps if scenario.adaptive_steps else (scenario.steps,)
    widths = [1, 1, *(steps + 1 for steps in counts for _ in range(3))]
    assert captures(ran) == [(-1, size, width) for size in sorted(SIZES, reverse=True) for width in widths]
    written = ran.channel("commit.written")
    records = ran.typed("graph.replay", LaunchRecord)
    of_captures = [key for key, record in records.items() if record.kind == LaunchKind.CAPTURE]
    assert {written[key] for key in of_captures} == {()}


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
