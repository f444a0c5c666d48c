"""How many drafts a round may have: by the controller, the scenario and what an n-gram draft found."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.properties.evidence.schedule import ObservedSchedule, Row
from draftproof.properties.values.observed import NgramMatch, StepsInForce
from draftproof.properties.values.scenario import Scenario, drafts_allowed, round_plan
from draftproof.properties.values.trace import Key, Trace


@dataclass(frozen=True)
class DraftPlans:
    """The drafts that rounds of a run may have.

    `controller` is the trace whose step counts hold: the reference's, or after a tie of a real model the subject's,
    whose continuation is another.
    """

    scenario: Scenario
    reference: Trace
    controller: Trace
    schedule: ObservedSchedule

    def steps_in_force(self, step: int) -> int:
        """Return the most drafts that a round of an engine step may have."""
        in_force = self.controller.typed("control.steps", StepsInForce).get(Key(-1, step))
        return in_force.steps if in_force else self.scenario.steps

    def width(self, step: int) -> int:
        """Return the verify width that the decode batch of an engine step runs at: 1 if no row has drafts."""
        rows = self.schedule.batches.get((step, 1), ())
        return self.scenario.most_drafts(self.steps_in_force(step)) + 1 if any(row.count for row in rows) else 1

    def drafts_wanted(self, row: Row) -> int:
        """Return what a decode row plans, within the steps in force; 0 in a batch too large for drafts."""
        if 0 < self.scenario.schedule.draft_batch < len(self.schedule.batches[row.step, 1]):
            return 0
        return min(round_plan(self.scenario.requests[row.request], row.round).num_drafts, self.steps_in_force(row.step))

    def drafts_allowed(self, row: Row, n: int) -> int:
        """Return the most drafts of a decode row at context n: what it wants within its limits."""
        request = self.scenario.requests[row.request]
        left = request.budget - (n + 1 - len(request.prompt))
        limit = self.scenario.memory.max_len
        return drafts_allowed(self.drafts_wanted(row), context=n, max_len=limit, budget_left=left)

    def num_found(self, request: int, round_: int, n: int) -> int | None:
        """Return how many tokens there were to propose, by the reference; None for a draft that does not look."""
        match = self.reference.typed("propose.match", NgramMatch).get(Key(request, round_))
        if match is None:
            return None
        return n + 1 - match.place if match.length else 0
