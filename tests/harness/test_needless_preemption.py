"""Whoever gives way though pages suffice is seen, also where the decode batch has no place for it (S-SCHED-8)."""

from collections.abc import Callable

import pytest

from draftproof.engine.scheduler import Scheduler
from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.contracts.registry import find
from draftproof.properties.values.scenario import Scenario
from tests.named import named

ON_DEMAND = find("schedule.preemption")


def fails(scenario: Scenario) -> bool:
    return bool(ON_DEMAND.check(evidence(EngineSubject(), scenario)))


def test_rounds_that_the_batch_has_no_place_for_want_no_pages(monkeypatch: pytest.MonkeyPatch):
    assert not fails(named("preempted"))
    right = Scheduler._spare

    def spare(self: Scheduler, steps_of: Callable[[int], int]) -> int:
        behind = self._ready()[self._config.max_batch :]
        wanted = {one.req_row: self._pages_of(self._round(one, self._config.steps)) for one in behind}
        return right(self, steps_of) - sum(max(0, n - len(self.page_table.pages[row])) for row, n in wanted.items())

    def preempt(self: Scheduler, steps_of: Callable[[int], int]) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Scheduler, "_spare", spare)
            return take_back(self, steps_of)

    take_back = Scheduler._preempt
    monkeypatch.setattr(Scheduler, "_preempt", preempt)
    assert fails(named("preempted"))
