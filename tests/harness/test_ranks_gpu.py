"""Ranks over NCCL, each on a device of its own: the same contracts, and a deadlock that is told as one."""

import sys
from pathlib import Path

import pytest

from draftproof.engine.subject import EngineSubject
from draftproof.engine.subject.ranks import group_of
from draftproof.harness.execute import Executor
from draftproof.harness.lockstep import evidence
from draftproof.harness.ranks.messages import LOCKSTEP
from draftproof.harness.workers.messages import Order
from draftproof.properties.coverage.counts import counts
from draftproof.properties.judge import judge
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import RankPlace
from draftproof.properties.values.trace import Trace
from draftproof.properties.values.verdict import Outcome
from tests.named import named, with_other_draft

pytestmark = [pytest.mark.gpu, pytest.mark.multigpu]
ROOT = Path(__file__).parents[2]
NAMES = ("ranks_data", "ranks_one_idle", "ranks_windowed", "ranks_tensor", "ranks_tensor_hybrid", "ranks_tensor_whole")
SCENARIOS = {name: named(name) for name in NAMES} | {
    f"{name}, {draft}": with_other_draft(named(name), draft)
    for name in ("ranks_one_idle", "ranks_windowed", "ranks_tensor")
    for draft in ALGORITHMS[1:]
}


@pytest.fixture(scope="module")
def subject() -> EngineSubject:
    return EngineSubject(device="cuda")


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_ranks_on_two_devices_pass_every_contract(subject: EngineSubject, scenario: Scenario) -> None:
    of = evidence(subject, scenario)
    assert judge(of).first is None
    assert counts(of)["tensor_ranks_run" if scenario.ranks.tensor > 1 else "idle_steps"]


class Skipping(EngineSubject):
    """Rank 1 does not agree on anything."""

    @property
    def spawned_as(self) -> tuple[str, dict[str, str]]:
        return f"{__name__}:Skipping", {"device": "cuda"}

    def run_rank(self, scenario: Scenario, script: Script, place: RankPlace) -> Trace:
        if self._group is None:
            self._group = group_of(place, self._device)
            self._device = self._group.device
            if place.rank == 1:
                self._group.agree = lambda *own: own  # type: ignore[method-assign]
        return super().run_rank(scenario, script, place)


def test_a_deadlock_is_a_hang_with_every_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each rank is a new interpreter, which makes the subject of this module.
    monkeypatch.setattr("sys.path", [*sys.path, str(ROOT)])
    answer = Executor(Skipping(device="cuda"), deadline=300).examine(Order(number=0, scenario=named("ranks_data")))
    assert (answer.outcome, answer.error) == (Outcome.HANG, LOCKSTEP)
    assert all(f"rank {rank}:" in answer.detail for rank in (0, 1))
