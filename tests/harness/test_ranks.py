"""Ranks in lockstep: processes that go on together, and what is said of those that do not."""

import gc
import os
import time
from dataclasses import replace

import pytest
from msgspec.structs import replace as put

from draftproof.engine.subject import EngineSubject
from draftproof.engine.subject.ranks import group_of
from draftproof.harness.execute import Executor
from draftproof.harness.lockstep import evidence
from draftproof.harness.ranks import world as worlds
from draftproof.harness.ranks.messages import LOCKSTEP
from draftproof.harness.workers.messages import Answer, Order
from draftproof.properties.contracts.registry import CONTRACTS_BY_NAME
from draftproof.properties.coverage.counts import counts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.features.data_parallel import without_ranks
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.lib.paths import put as put_at
from draftproof.properties.validate import validate
from draftproof.properties.values.observed import Collective, MemoryRegion, WrittenPlace
from draftproof.properties.values.scenario import Ranks, Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import RankPlace, Subject
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.solved import solved
from tests.named import named
from tests.named.ran import ran_named
from tests.properties.facts import names_of

UNEVEN, ONE_IDLE = "ranks_data", "ranks_one_idle"
"""Requests on ranks 0, 0, 1, and on 0, 0, 0; they do not all end together."""


def examined(subject: Subject, scenario: Scenario) -> Answer:
    return Executor(subject, deadline=60).examine(Order(number=0, scenario=scenario))


@pytest.mark.parametrize("name", [UNEVEN, ONE_IDLE])
def test_ranks_pass_every_contract_and_their_sizes_are_agreed(name: str) -> None:
    judged = judge(ran_named(name))
    assert judged.first is None
    counted = counts(ran_named(name))
    assert (counted["scenarios"], len(ran_named(name).ranks)) == (1, 2)
    assert counted["idle_launches"]
    assert counted["idle_steps"]
    assert set(names_of("data-parallel")) <= counted.keys()


def test_three_ranks_pass_where_others_are_two() -> None:
    """Whatever takes two for their number shows here only."""
    scenario = named(UNEVEN)
    requests = tuple(put(one, rank=rank) for one, rank in zip(scenario.requests, (0, 2, 1), strict=True))
    of = evidence(EngineSubject(), validate(put_at(put(scenario, requests=requests), "ranks.data", 3)))
    assert judge(of).first is None
    assert len(of.ranks) == 3


def test_windows_are_a_matter_of_each_rank() -> None:
    of = ran_named("ranks_windowed")
    assert judge(of).first is None
    assert counts(of)["windows_of_ranks"] == 2
    assert counts(of)["window_pages_freed"]


def test_ranks_emit_what_each_request_does_alone() -> None:
    scenario = named(UNEVEN)
    alone = evidence(EngineSubject(), without_ranks(scenario)).subject.texts
    texts = [one.subject.texts for one in evidence(EngineSubject(), scenario).ranks]
    assert [texts[rank][number] for rank, number in ((0, 0), (0, 1), (1, 0))] == [alone[n] for n in range(3)]


def changed(
    of: Evidence, rank: int, *, without: Observation | None = None, more: Observation | None = None
) -> Evidence:
    """The evidence with another trace of one rank."""
    one = of.ranks[rank]
    kept = tuple(each for each in one.subject.observations if each is not without) + ((more,) if more else ())
    other = replace(one, subject=replace(one.subject, observations=kept))
    return replace(of, ranks=(*of.ranks[:rank], other, *of.ranks[rank + 1 :]))


def fails(of: Evidence, contract: str, rank: int) -> bool:
    found = judge(of, (CONTRACTS_BY_NAME[contract],)).results[contract]
    return found is not None and found.rank == rank


@pytest.mark.parametrize("rank", [0, 1])
def test_a_collective_that_is_missing_or_of_another_shape_is_found(rank: int) -> None:
    of = ran_named(UNEVEN)
    one = next(each for each in of.ranks[rank].subject.observations if each.channel == "rank.collectives")
    assert isinstance(one.value, Collective)
    other = one._replace(value=Collective(one.value.op, one.value.rows + 1, one.value.lanes))
    surplus = one._replace(key=one.key._replace(step=999))
    assert not fails(of, "rank.collectives", rank)
    assert fails(changed(of, rank, without=one), "rank.collectives", rank)
    assert fails(changed(of, rank, without=one, more=other), "rank.collectives", rank)
    assert fails(changed(of, rank, more=surplus), "rank.collectives", rank)


def test_what_an_idle_rank_writes_is_found() -> None:
    of = ran_named(ONE_IDLE)
    launch = next(one for one in of.ranks[1].schedule.launches if not one.rows)
    key = Key(-1, launch.step, step=launch.number)
    one = next(x for x in of.ranks[1].subject.observations if (x.channel, x.key) == ("commit.written", key))
    wrong = one._replace(value=(WrittenPlace(MemoryRegion.TARGET, 3),))
    assert not fails(of, "rank.idle", 1)
    assert fails(changed(of, 1, without=one, more=wrong), "rank.idle", 1)


def test_processes_are_used_again() -> None:
    subject = EngineSubject()
    for scenario in (named(UNEVEN), named(ONE_IDLE)):
        evidence(subject, scenario)
        pids = [rank.pid for rank in worlds.world(subject, 2)._ranks]
    assert pids == [rank.pid for rank in worlds.world(subject, 2)._ranks]
    worlds.world(subject, 2).close()


class Spawned(EngineSubject):
    """Each rank is a new interpreter, as on devices."""

    @property
    def spawned_as(self) -> tuple[str, dict[str, str]]:
        return "draftproof.engine.subject:EngineSubject", {"device": "cpu"}


def test_ranks_in_new_interpreters_run_the_same() -> None:
    """No process is left behind that nobody waits for: Python would warn of it, and a warning is an error here."""
    subject = Spawned()
    of = evidence(subject, named(UNEVEN))
    worlds.world(subject, 2).close()
    gc.collect()
    assert judge(of).passed
    assert [one.subject.observations for one in of.ranks] == [
        one.subject.observations for one in ran_named(UNEVEN).ranks
    ]


class Misbehaving(EngineSubject):
    """Rank 1 does what a subject under test must not."""

    def run_rank(self, scenario: Scenario, script: Script, place: RankPlace) -> Trace:
        if place.rank == 1:
            self.misbehave(place)
        return super().run_rank(scenario, script, place)

    def misbehave(self, place: RankPlace) -> None:
        raise NotImplementedError


class Dying(Misbehaving):
    def misbehave(self, place: RankPlace) -> None:
        os._exit(7)


class Raising(Misbehaving):
    def misbehave(self, place: RankPlace) -> None:
        raise ValueError("no such row")


class Skipping(Misbehaving):
    def misbehave(self, place: RankPlace) -> None:
        self._group = group_of(place, self._device)
        self._group.agree = lambda *own: own  # type: ignore[method-assign]


class Padding(Misbehaving):
    def misbehave(self, place: RankPlace) -> None:
        self._group = group_of(place, self._device)
        gather = self._group.gather
        self._group.gather = lambda x: gather(x.repeat(2, 1))  # type: ignore[method-assign]


class Waiting(Misbehaving):
    def misbehave(self, place: RankPlace) -> None:
        time.sleep(60)


def test_a_rank_that_dies_is_a_crash_and_the_next_scenario_runs() -> None:
    subject = Dying()
    answer = examined(subject, named(UNEVEN))
    assert (answer.outcome, answer.error) == (Outcome.CRASH, "RankDiedError")
    assert "rank 1 ended (exit 7)" in answer.reason
    subject.misbehave = lambda place: None  # type: ignore[method-assign]
    assert examined(subject, named(UNEVEN)).outcome is Outcome.PASS


def test_a_rank_that_raises_is_a_crash_with_its_traceback() -> None:
    answer = examined(Raising(), named(UNEVEN))
    assert (answer.outcome, answer.error) == (Outcome.CRASH, "RankRaisedError")
    assert "rank 1: ValueError: no such row" in answer.reason
    assert "misbehave" in answer.detail


def test_a_rank_that_skips_a_collective_is_a_hang_with_every_stack() -> None:
    began = time.monotonic()
    answer = examined(Skipping(), named(UNEVEN))
    assert (answer.outcome, answer.error) == (Outcome.HANG, LOCKSTEP)
    assert "rank 0 waits in agree [1, 4], rank 1 waits in gather" in answer.reason
    assert "missing on some rank: " in answer.reason
    assert all(f"rank {rank}:" in answer.detail for rank in (0, 1))
    assert answer.detail.count("engine/ranks.py") >= 2
    assert time.monotonic() - began < worlds.QUIET_SECONDS


def test_a_rank_that_pads_otherwise_fails_the_contract() -> None:
    answer = examined(Padding(), named(UNEVEN))
    assert answer.outcome is Outcome.FAIL
    assert answer.failures["rank.collectives"].channel == "rank.collectives"


def test_a_rank_that_never_comes_is_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "QUIET_SECONDS", 1.0)
    answer = examined(Waiting(), named(UNEVEN))
    assert answer.outcome is Outcome.HANG
    assert "rank 1 has not come" in answer.reason


class Alone(Subject):
    """A subject that knows nothing of ranks."""

    name = "alone"

    def __init__(self) -> None:
        self._engine = EngineSubject()
        self.ran: list[int] = []

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return self._engine.channels(scenario) - {"rank.collectives"}

    def run(self, scenario: Scenario, script: Script) -> Trace:
        self.ran.append(len(scenario.requests))
        trace = self._engine.run(scenario, script)
        return replace(trace, channels=trace.channels - {"rank.collectives"})


def test_a_subject_without_ranks_serves_the_part_of_each_alone() -> None:
    subject = Alone()
    judged = judge(evidence(subject, named(UNEVEN)))
    assert judged.first is None
    assert subject.ran == [2, 1]
    assert "rank.collectives" not in judged.results


def test_a_rank_on_which_nothing_runs_is_not_served_by_a_subject_without_ranks() -> None:
    uneven = named(UNEVEN)
    *others, last = uneven.requests
    subject = Alone()
    judged = judge(evidence(subject, put(uneven, requests=(*others, put(last, abort_at=last.arrival)))))
    assert judged.first is None
    assert subject.ran == [2]


def test_the_reference_solves_each_rank_alone() -> None:
    known = solved(named(UNEVEN))
    assert [len(part.script.requests) for part in known.ranks] == [2, 1]
    assert len(known.script.requests) == 3


def test_a_request_on_a_rank_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidScenarioError, match=r"invalid requests\[2\].rank 1: expected below ranks.data = 1"):
        validate(put(named(UNEVEN), ranks=Ranks(data=1)))


def test_ranks_serve_once() -> None:
    with pytest.raises(InvalidScenarioError, match=r"invalid schedule\.services 2: expected 1 with ranks"):
        validate(put_at(named(UNEVEN), "schedule.services", 2))


def test_ranks_without_requests_are_the_last() -> None:
    scenario = named(UNEVEN)
    moved = put(scenario, requests=tuple(put(one, rank=1) for one in scenario.requests))
    with pytest.raises(InvalidScenarioError, match=r"invalid requests.rank \[1\]: expected requests on ranks 0, 1"):
        validate(moved)
