"""Plan a campaign: batches of scenarios, each before the one before it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from draftproof.fuzz.campaign.schema import QueuedScenario
from draftproof.fuzz.campaign.store import Store, hash_of
from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.scenario import Scenario

_WORKERS_A_BLOCK = 8


class Planner(Protocol):
    """Plans blocks of scenarios, and says where each comes from: a function of its seed and the number only."""

    def block(self, number: int) -> Sequence[tuple[Scenario, str]]: ...


class Batches:
    """The batch that runs, and the one after it, which is planned and kept. `width`: how many workers there are."""

    def __init__(self, planner: Planner, store: Store, width: int) -> None:
        self._planner, self._store = planner, store
        self._blocks = max(1, round(width / _WORKERS_A_BLOCK))
        facts = store.facts()
        begin = int(facts.get("begin", 0))
        self._current = range(int(facts.get("before", 0)), begin)
        queued = store.queued()
        self.left = [one for one in queued if one.number < begin]
        """What an earlier call left of the batch that ran."""
        self._ahead = [one for one in queued if one.number >= begin]

    def begin(self) -> list[QueuedScenario]:
        """Return the batch that runs now."""
        if not self._ahead:
            self.plan()
        self._current = range(self._ahead[0].number, self._ahead[-1].number + 1)
        return self._ahead

    def plan(self) -> None:
        """Plan the next batch; it is kept before any of it is handed out."""
        begin = int(self._store.facts().get("block", -1)) + 1
        blocks = range(begin, begin + self._blocks)
        planned = [one for number in blocks for one in self._planner.block(number)]
        if not planned:
            raise RuntimeError(f"block {begin} is empty: expected at least one scenario")
        self._ahead = [
            QueuedScenario(place, scenario, hash_of(scenario), origin, algorithm(scenario.draft))
            for place, (scenario, origin) in enumerate(planned, start=self._store.planned)
        ]
        self._store.queue(blocks[-1], self._ahead)

    def finish_batch(self) -> None:
        """Count what the batch that ran brought. A second time does nothing."""
        if self._current:
            self._store.finish_batch(self._current)
        self._current = range(0)
