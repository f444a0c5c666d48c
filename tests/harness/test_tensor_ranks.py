"""Tensor-parallel ranks: each has its part of every layer and decides what the others do; what is said if not."""

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace as put
from torch import Tensor

from draftproof.engine.subject import EngineSubject
from draftproof.engine.subject.ranks import group_of
from draftproof.engine.tensor_ranks import TensorGroup
from draftproof.harness import lockstep
from draftproof.harness.execute import Executor
from draftproof.harness.lockstep import evidence
from draftproof.harness.ranks.messages import LOCKSTEP
from draftproof.harness.workers.journal import Journal
from draftproof.harness.workers.messages import Answer, Order, Place
from draftproof.properties.contracts.registry import CONTRACTS_BY_NAME
from draftproof.properties.contracts.tensor_ranks import DECISIONS
from draftproof.properties.coverage.counts import counts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.tensor_ranks import STATE_CHANNELS, part_of_rank
from draftproof.properties.features.tensor_parallel import without_tensor_ranks
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.lib.paths import put as put_at
from draftproof.properties.lib.paths import put_in
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm
from draftproof.properties.values.observed import Collective
from draftproof.properties.values.scenario import ProbeModel, Ranks, Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import RankPlace
from draftproof.properties.values.trace import Observation, Trace
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.answer import answer
from tests.named import named, with_other_draft
from tests.named.ran import ran_named

DENSE, HYBRID, WHOLE = "ranks_tensor", "ranks_tensor_hybrid", "ranks_tensor_whole"
"""Scenarios of two ranks, of which the last has each draft whole on either."""


def examined(subject: EngineSubject, scenario: Scenario) -> Answer:
    return Executor(subject, deadline=60).examine(Order(number=0, scenario=scenario))


@pytest.mark.parametrize("draft", ALGORITHMS)
def test_ranks_pass_every_contract(draft: Algorithm) -> None:
    of = evidence(EngineSubject(), with_other_draft(named(DENSE), draft))
    judged = judge(of)
    assert judged.first is None
    assert {"tensor.collectives", "tensor.decisions"} <= judged.results.keys()
    assert not {"rank.collectives", "rank.idle"} & judged.results.keys()
    counted = counts(of)
    assert (counted["scenarios"], counted["tensor_ranks_run"], len(of.ranks)) == (1, 2, 2)


def test_ranks_that_do_the_same_are_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    monkeypatch.setattr(lockstep, "answer", lambda *run: answers.append(answer(*run)) or answers[-1])
    ran = evidence(EngineSubject(), named(DENSE)).ranks
    assert (len(ran), len(answers)) == (2, 1)
    assert [one.script for one in ran] == [answers[0].script] * 2


@pytest.mark.parametrize("name", [DENSE, HYBRID])
def test_ranks_make_what_one_rank_makes(name: str) -> None:
    scenario = named(name)
    alone = evidence(EngineSubject(), without_tensor_ranks(scenario))
    whole = alone.subject
    for rank, one in enumerate(ran_named(name).ranks):
        part = part_of_rank(whole, scenario, rank)
        assert one.subject.texts == whole.texts
        for channel in ("verify.hidden", "verify.choice", "commit.kv", "extend.kv", *STATE_CHANNELS):
            assert one.subject.channel(channel) == part.channel(channel), channel
        assert bool(one.subject.channel("commit.state")) == (name == HYBRID)


def test_the_parts_of_an_entry_are_the_whole() -> None:
    scenario = named(DENSE)
    whole = evidence(EngineSubject(), without_tensor_ranks(scenario)).subject.channel("commit.kv")
    parts = [one.subject.channel("commit.kv") for one in ran_named(DENSE).ranks]
    assert isinstance(scenario.model, ProbeModel)
    for key, entry in whole.items():
        both = [np.frombuffer(bytes(part[key]), dtype="<u8") for part in parts]
        keys = scenario.model.kv_heads * scenario.model.key_dim // 2
        put_together = np.concatenate([*(one[:keys] for one in both), *(one[keys:] for one in both)])
        assert put_together.tobytes() == entry


def test_a_forward_adds_up_once_and_twice_a_layer() -> None:
    scenario = named(WHOLE)
    model, requests = scenario.model, tuple(put(one, prompt_logprobs=None) for one in scenario.requests)
    of = evidence(EngineSubject(), put(scenario, requests=requests))
    issued = [value for key, value in of.subject.typed("rank.collectives", Collective).items() if not key.layer]
    decided = [one for one in issued if one.op == 2]
    sums = [one for one in issued if one.op == 3]
    assert not any(one.op == 1 for one in issued)
    assert isinstance(model, ProbeModel)
    assert len(sums) == len(decided) * (1 + 2 * model.layers)
    assert {one.dtype for one in sums} == {1}
    assert {(one.lanes, one.dtype) for one in decided} == {(-(-model.vocab // 2), 2)}


def test_four_ranks_with_a_head_each() -> None:
    scenario = named(DENSE)
    four = Ranks(tensor=4, draft_tensor=4)
    model = put(scenario.model, heads=4, kv_heads=4, lanes=6)
    draft = put(scenario.draft, heads=8, kv_heads=4, lanes=5)
    of = evidence(EngineSubject(), validate(put(scenario, model=model, draft=draft, ranks=four)))
    assert judge(of).first is None
    assert counts(of)["tensor_ranks_run"] == 4


def changed(of: Evidence, rank: int, old: Observation, *new: Observation) -> Evidence:
    """The evidence with another trace of one rank, as each rank sees those beside it."""
    one = of.ranks[rank]
    kept = tuple(each for each in one.subject.observations if each is not old)
    other = replace(one, subject=replace(one.subject, observations=(*kept, *new)))
    ranks = (*of.ranks[:rank], other, *of.ranks[rank + 1 :])
    assert of.beside is not None
    beside = replace(of.beside, subjects=tuple(one.subject for one in ranks))
    return replace(of, ranks=tuple(replace(one, beside=beside) for one in ranks))


def fails(of: Evidence, contract: str) -> bool:
    return judge(of, (CONTRACTS_BY_NAME[contract],)).results[contract] is not None


@pytest.mark.parametrize("rank", [0, 1])
def test_a_collective_that_is_missing_or_another_is_found(rank: int) -> None:
    of = ran_named(DENSE)
    one = next(each for each in of.ranks[rank].subject.observations if each.channel == "rank.collectives")
    assert isinstance(one.value, Collective)
    assert not fails(of, "tensor.collectives")
    assert fails(changed(of, rank, one), "tensor.collectives")
    for name, value in (("op", 2), ("rows", one.value.rows + 1), ("lanes", one.value.lanes + 1), ("dtype", 2)):
        other = one._replace(value=put(one.value, **{name: value}))
        assert fails(changed(of, rank, one, other), "tensor.collectives"), name
    assert fails(changed(of, rank, one, one, one._replace(key=one.key._replace(round=999))), "tensor.collectives")


def test_collectives_that_are_wrong_on_all_ranks_are_found() -> None:
    of = ran_named(DENSE)
    for rank in (0, 1):
        one = next(each for each in of.ranks[rank].subject.observations if each.channel == "rank.collectives")
        assert isinstance(one.value, Collective)
        of = changed(of, rank, one, one._replace(value=put(one.value, lanes=one.value.lanes + 1)))
    assert fails(of, "tensor.collectives")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_decision_that_only_one_rank_makes_is_found(rank: int) -> None:
    # With a prefix cache, so that they decide what it has.
    cached = put_in(put_in(named(HYBRID), "schedule", prefix_cache=True), "memory", checkpoint_slots=2)
    of = evidence(EngineSubject(), put_in(cached, "states", checkpoint=cached.memory.page_size))
    assert not fails(of, "tensor.decisions")
    reported = {one.channel: one for one in of.ranks[rank].subject.observations}
    assert set(DECISIONS) - reported.keys() <= {"adaptive_steps.steps", "propose.parents"}
    for channel in DECISIONS:
        if channel in reported:
            assert fails(changed(of, rank, reported[channel]), "tensor.decisions"), channel


class Raising(EngineSubject):
    """Every rank raises."""

    def run_rank(self, scenario: Scenario, script: Script, place: RankPlace) -> Trace:
        raise RuntimeError(f"rank {place.rank} does nothing")


def test_what_ranks_do_is_not_noted_as_the_references_doing(tmp_path: Path) -> None:
    """A hang in the reference is an error of ours, and one of ranks is not."""
    executor = Executor(Raising(), journal=Journal(tmp_path / "journal"))
    answer = executor.answer(Order(number=0, scenario=named("ranks_tensor")))
    assert answer.outcome is Outcome.CRASH
    assert answer.place == Place(run="base")


class Misbehaving(EngineSubject):
    """Rank 1 does what a subject under test must not."""

    def run_rank(self, scenario: Scenario, script: Script, place: RankPlace) -> Trace:
        if place.rank == 1 and scenario.ranks.tensor > 1:
            self._group = self._group or group_of(place, self._device)
            self._tensor_group = self._tensor_group or TensorGroup(self._group)
            self.misbehave(self._tensor_group)
        return super().run_rank(scenario, script, place)

    def misbehave(self, group: TensorGroup) -> None:
        raise NotImplementedError


class Dying(Misbehaving):
    def misbehave(self, group: TensorGroup) -> None:
        os._exit(7)


class NotGathering(Misbehaving):
    def misbehave(self, group: TensorGroup) -> None:
        group.all_gather = lambda x: x.repeat(1, group.size)  # type: ignore[method-assign]


class NotReducing(Misbehaving):
    """It leaves out every sum, and would otherwise come to the same number of gathers."""

    def misbehave(self, group: TensorGroup) -> None:
        group.all_reduce = _as_it_is  # type: ignore[method-assign]


def _as_it_is(x: Tensor) -> Tensor:
    return x


def test_a_rank_that_dies_is_a_crash_and_the_next_scenario_runs() -> None:
    subject = Dying()
    answer = examined(subject, named(DENSE))
    assert (answer.outcome, answer.error) == (Outcome.CRASH, "RankDiedError")
    assert "rank 1 ended (exit 7)" in answer.reason
    assert examined(subject, without_tensor_ranks(named(DENSE))).outcome is Outcome.PASS
    subject.misbehave = lambda group: None  # type: ignore[method-assign]
    assert examined(subject, named(DENSE)).outcome is Outcome.PASS


@pytest.mark.parametrize("subject", [NotGathering(), NotReducing()], ids=["gather", "sum"])
def test_a_rank_that_leaves_out_a_collective_is_a_hang_with_every_stack(subject: Misbehaving) -> None:
    answer = examined(subject, named(DENSE))
    assert (answer.outcome, answer.error) == (Outcome.HANG, LOCKSTEP)
    assert re.search(r"missing on some rank: (gather \[.*\] of float32 or )?sum \[", answer.reason), answer.reason
    assert all(f"rank {rank}:" in answer.detail for rank in (0, 1))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ranks.tensor": 3, "ranks.draft_tensor": 1, "model.heads": 4}, "3: expected a divisor of model.heads = 4"),
        ({"model.heads": 6, "model.kv_heads": 3}, "invalid ranks.tensor 2: expected a divisor of model.kv_heads = 3"),
        (
            {"draft.heads": 3, "draft.kv_heads": 1},
            "invalid ranks.draft_tensor 2: expected a divisor of draft.heads = 3",
        ),
        ({"ranks.draft_tensor": 3}, "invalid ranks.draft_tensor 3: expected 1, or ranks.tensor = 2"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(changes: dict[str, object], told: str) -> None:
    scenario = named(DENSE)
    for path, value in changes.items():
        scenario = put_at(scenario, path, value)
    with pytest.raises(InvalidScenarioError, match=re.escape(told)):
        validate(scenario)


def test_linear_heads_are_shared_out_too() -> None:
    scenario = put_at(put_at(named(HYBRID), "model.linear.key_heads", 1), "model.linear.value_heads", 2)
    told = "invalid ranks.tensor 2: expected a divisor of model.linear.key_heads = 1"
    with pytest.raises(InvalidScenarioError, match=re.escape(told)):
        validate(scenario)


def test_no_request_has_a_rank_of_its_own() -> None:
    scenario = named(DENSE)
    requests = (*scenario.requests[:-1], put(scenario.requests[-1], rank=1))
    with pytest.raises(InvalidScenarioError, match=re.escape("rank 1: expected below ranks.data = 1")):
        validate(put(scenario, requests=requests))
