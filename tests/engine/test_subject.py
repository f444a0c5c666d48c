"""The engine as a subject: what it reports is what the reference says, graphs or not, taps or not."""

from typing import Any

import pytest
from msgspec.structs import replace

from draftproof.engine.drafts.eagle import EagleDraft
from draftproof.engine.scheduler import Scheduler
from draftproof.engine.subject import EngineSubject, memory
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.observed import LaunchKind, MemoryRegion, PoolReport, WrittenPlace
from draftproof.properties.values.scenario import Graphs, Memory, Scenario, Schedule
from draftproof.properties.values.trace import Trace
from draftproof.reference.run import run
from draftproof.reference.solve import solve
from tests.engine.scenarios import request, scenario
from tests.named import with_other_draft

BATCH = (request(), request(arrival=1, prompt=2, plans="1/1 3/-1"), request(arrival=1, prompt=5, budget=4, stop_at=2))
SETTINGS = {
    "graphs": scenario(*BATCH),
    "eager": scenario(*BATCH, sizes=()),
    "padded eager": scenario(*BATCH, graphs=Graphs(sizes=(4,), capture=False)),
    "page size 1": scenario(*BATCH, memory=Memory(page_size=1, pages=99, request_slots=4, max_len=30, poison=1)),
    "oversized batch": scenario(*BATCH, sizes=(1,)),
    "at max_len": scenario(*BATCH, memory=Memory(page_size=4, pages=40, request_slots=4, max_len=11)),
    "queue": scenario(
        *BATCH,
        memory=Memory(page_size=4, pages=6, request_slots=2, max_len=30),
        schedule=Schedule(max_batch=1, chunk=9),
    ),
    "one draft": scenario(request(plans="1/1 1/0"), steps=1),
}
SETTINGS |= {
    f"{name}, {case}": with_other_draft(SETTINGS[case], name, number)
    for name in ALGORITHMS
    for number, case in enumerate(("graphs", "eager", "padded eager", "oversized batch", "at max_len", "queue"))
    if name != "eagle"
}


def trace(case: Scenario) -> Trace:
    return EngineSubject().run(case, solve(case))


@pytest.mark.parametrize("case", SETTINGS.values(), ids=SETTINGS)
def test_everything_the_reference_says_is_what_the_engine_reports(case: Scenario):
    reference, engine = run(case, solve(case)), trace(case)
    differences = [
        (channel, key, value, engine.channel(channel).get(key))
        for channel in sorted(reference.channels)
        for key, value in reference.channel(channel).items()
        if engine.channel(channel).get(key) != value
    ]
    assert differences == []
    assert len(reference.observations) > 50
    assert engine.duplicates == ()


def test_the_trace_is_the_same_in_every_run():
    assert trace(SETTINGS["graphs"]) == trace(SETTINGS["graphs"])


def test_pages_that_a_chunk_takes_too_early_are_reported_once(monkeypatch: pytest.MonkeyPatch):
    of_chunk = Scheduler._pages_to
    monkeypatch.setattr(Scheduler, "_pages_to", lambda self, end: of_chunk(self, end) + 1)
    reported = trace(scenario(request(prompt=12)))
    assert reported.duplicates == ()
    assert sum(key.round == 0 for key in reported.channel("round.table")) == 5


def test_places_in_a_large_memory_are_the_same(monkeypatch: pytest.MonkeyPatch):
    reported = trace(SETTINGS["graphs"])
    monkeypatch.setattr(memory, "_MOST_WORDS", 0)
    assert trace(SETTINGS["graphs"]) == reported


def test_graphs_are_replayed_and_oversized_batches_run_eagerly():
    assert max(launch.replays for launch in trace(SETTINGS["graphs"]).channel("graph.replay").values()) > 1
    launches = trace(SETTINGS["oversized batch"]).channel("graph.replay").values()
    assert {launch.size for launch in launches if launch.rows > 1} == {0}
    assert 1 in {launch.size for launch in launches}


def test_capture_writes_slot_0_only():
    engine = trace(SETTINGS["graphs"])
    captures = [key for key, value in engine.channel("graph.replay").items() if value.kind == LaunchKind.CAPTURE]
    written = {engine.channel("commit.written")[key] for key in captures}
    assert captures
    assert written == {()}


def test_without_taps_pools_and_tokens_are_the_same():
    with_taps, without = trace(scenario(*BATCH)), trace(scenario(*BATCH, taps=False))
    assert without.channels < with_taps.channels
    # Which slots a launch is given only taps show.
    for channel in without.channels - {"commit.written", "config.index_bytes"}:
        assert without.channel(channel) == with_taps.channel(channel), channel
    assert without.channel("commit.kv")


def test_slots_are_reused_and_all_pages_come_back():
    case = SETTINGS["queue"]
    owners = trace(case).channel("pool.owners")
    last = max(owners)
    assert owners[last] == PoolReport(case.memory.pages, case.memory.request_slots, ())
    assert len({tuple(owner.index for owner in report.owners) for report in owners.values()}) > 2


def test_guards_are_watched():
    guards = trace(SETTINGS["graphs"]).channel("pool.guards")
    assert guards
    assert set(guards.values()) == {()}


def test_unsteered_rounds_verify_the_proposal_itself():
    free = replace(BATCH[0], rounds=(request(plans="3/-1").rounds))
    engine = trace(scenario(free))
    ids, proposals = engine.channel("verify.ids"), engine.channel("draft.step.proposal")
    pairs = [(ids[key._replace(step=-1, row=key.step + 1)], value[0]) for key, value in proposals.items()]
    assert pairs
    assert all(verified == proposed for verified, proposed in pairs)


def test_a_write_between_launches_is_held_against_the_next(monkeypatch: pytest.MonkeyPatch):
    save_next_round = EagleDraft.save_next_round

    def astray(self: EagleDraft, *of: Any) -> None:
        save_next_round(self, *of)
        self.context.arena["target.v.0"][-1] += 1

    monkeypatch.setattr(EagleDraft, "save_next_round", astray)
    engine = trace(SETTINGS["graphs"])
    last = SETTINGS["graphs"].memory
    place = WrittenPlace(MemoryRegion.TARGET, (last.pages + 1) * last.page_size - 1)
    written = [value for _, value in sorted(engine.channel("commit.written").items())]
    assert sum(place in value for value in written) > 1
