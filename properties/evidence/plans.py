"""How many drafts a round may have: by the controller, the scenario and what an n-gram draft found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from draftproof.properties.evidence.schedule import ObservedSchedule, Row
from draftproof.properties.values.observed import NgramMatch, StepsInForce
from draftproof.properties.values.scenario import Scenario, drafts_allowed, drafts_within, round_plan
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Key, Trace

_Share = tuple[int, int, int]
"""A request, with the tokens that it wants of a step, and those that it gets."""


@dataclass(frozen=True)
class DraftPlans:
    """The drafts that rounds of a run may have.

    `controller` is the trace with the step counts that hold: the reference's, or the subject's after a tie of a real
    model, where its text goes another way.
    """

    scenario: Scenario
    script: Script
    reference: Trace
    controller: Trace
    schedule: ObservedSchedule

    def steps_in_force(self, step: int) -> int:
        """Return the most drafts that a round of an engine step may have."""
        in_force = self.controller.typed("adaptive_steps.steps", StepsInForce).get(Key(-1, step))
        return in_force.steps if in_force else self.scenario.steps

    def width(self, step: int) -> int:
        """Return the verify width that the decode batch of an engine step runs at: 1 if no row has drafts."""
        rows = self.schedule.batches.get((step, 1), ())
        if self.schedule.overlap:
            # Who does not know lengths goes by what is wanted.
            has_drafts = any(self.drafts_wanted(row) for row in rows)
            return self.scenario.most_drafts(self.steps_in_force(step)) + 1 if has_drafts else 1
        return self.scenario.most_drafts(self.steps_in_force(step)) + 1 if any(row.count for row in rows) else 1

    def drafts_wanted(self, row: Row) -> int:
        """Return what a decode row plans, within the steps in force; 0 in a batch too large for drafts."""
        if 0 < self.scenario.schedule.draft_batch < len(self.schedule.batches[row.step, 1]):
            return 0
        wanted = min(
            round_plan(self.scenario.requests[row.request], row.round).num_drafts, self.steps_in_force(row.step)
        )
        if not (self.schedule.overlap and self.scenario.schedule.token_budget):
            return wanted
        return drafts_within(self.scenario, wanted, self.tokens_of_step(row.step).get(row.request, 0))

    def drafts_allowed(self, row: Row, n: int) -> int:
        """Return the most drafts of a decode row at context n: what it wants within its limits."""
        fitting = self.drafts_fitting(row, n)
        if not self.scenario.schedule.token_budget:
            return fitting
        return drafts_within(self.scenario, fitting, self.tokens_of_step(row.step).get(row.request, 0))

    def drafts_fitting(self, row: Row, n: int) -> int:
        """Return how many drafts a round may have if other requests took none of the step's tokens."""
        return self._fitting(self.drafts_wanted(row), row.request, n)

    def _fitting(self, wanted: int, index: int, n: int) -> int:
        request = self.scenario.requests[index]
        left = request.budget - (n + 1 - len(request.prompt))
        return drafts_allowed(wanted, context=n, max_len=self.scenario.memory.max_len, budget_left=left)

    def tokens_of_step(self, step: int) -> Mapping[int, int]:
        """Return the tokens that each request has to run in a step with a budget, live ones in order (S-SCHED-10)."""
        return {index: got for index, _, got in self._shares(step)}

    def tokens_left(self, step: int, engine: int = 0) -> int:
        """Return the tokens of a step's budget that the live requests leave; without a budget there are always some.

        With PD disaggregation each engine has the whole budget: the prefill engine (0), and the decode engine (1).
        """
        budget = self.scenario.schedule.token_budget
        taken = sum(got for _, _, got in self._shares_of(step, engine))
        return budget - taken if budget else sys.maxsize

    def tokens_wanted(self, step: int) -> Mapping[int, int]:
        """Return the tokens that it would run, were there enough."""
        return {index: wanted for index, wanted, _ in self._shares(step)}

    def _shares(self, step: int) -> Iterator[_Share]:
        for engine in range(self.scenario.engines):
            yield from self._shares_of(step, engine)

    @cached_property
    def _shares_of(self) -> Callable[[int, int], tuple[_Share, ...]]:
        """Return the shares of a step and an engine: many rows ask for those of one step."""
        return cache(lambda step, engine: tuple(self._divided(step, engine)))

    def _divided(self, step: int, engine: int) -> Iterator[_Share]:
        """Yield each live request of an engine with the tokens that it wants of a step, and those that it gets."""
        spans, requests = self.schedule.attempt_spans, self.scenario.requests
        live = [one for one, (first, last) in spans.items() if first <= step <= last]
        live = [one for one in live if self.schedule.engine(one[1]) == engine]
        live.sort(key=lambda one: (spans[one][0], *self.schedule.came(one[0], one[1], requests[one[0]].arrival)))
        left, rounds = self.scenario.schedule.token_budget, 0
        for index, attempt in live:
            rows = self.schedule.rows_of[index, attempt]
            before = [row for row in rows if row.step < step]
            # Whose prompt another engine ran begins with a round.
            text = 0 if rows[0].phase else self._text(index, rows[0].round)
            text -= sum(row.count for row in before if not row.phase)
            wanted = min(text, self.scenario.schedule.chunk)
            if text <= 0:
                number = before[-1].round + 1 if before else rows[0].round
                is_over = before and self._is_over(before[-1], step)
                has_place = rounds < self.scenario.schedule.max_batch and not is_over
                wanted = self._wanted_by_round(index, number) if has_place else 0
                rounds += not is_over
            # A tree is not cut (S-SCHED-10).
            got = min(1, left) if self.scenario.tree and text <= 0 and wanted > left else min(wanted, left)
            yield index, wanted, got
            left -= got

    def _is_over(self, last: Row, step: int) -> bool:
        """Return whether a host that plans ahead knows in a step that a request has ended or will have."""
        solved = self.script.requests[last.request]
        if not self.schedule.overlap or last.round < len(solved.rounds) or solved.aborted:
            return False
        is_discarded = last.round > len(solved.rounds)
        return is_discarded or self.schedule.done(last) < step or self.is_sure_to_end(last.request)

    def is_sure_to_end(self, request: int) -> bool:
        """Return whether the last round had to end a request, as it adds one token at least (S-OVERLAP-5)."""
        asked, rounds = self.scenario.requests[request], self.script.requests[request].rounds
        known = rounds[-1].context + 1 - len(asked.prompt) if rounds else 0
        return known + 1 >= asked.budget or len(asked.prompt) + known + 1 >= self.scenario.memory.max_len

    def _text(self, index: int, number: int) -> int:
        """Return how many tokens the prefill of a round runs."""
        prompt = len(self.scenario.requests[index].prompt)
        tokens = self.script.requests[index].context(number, prompt) + 1 if number else prompt
        return tokens - self.schedule.cached.get((index, number), 0)

    def _wanted_by_round(self, index: int, number: int) -> int:
        """Return the verify rows that a round wants; none behind the last."""
        request, solved = self.scenario.requests[index], self.script.requests[index]
        planned = min(round_plan(request, number).num_drafts, self.scenario.steps)
        if self.schedule.overlap:
            # Who does not know lengths goes by what is wanted.
            return 1 + self.scenario.most_drafts(planned)
        if number > len(solved.rounds) + int(solved.aborted):
            return 0
        fitting = self._fitting(planned, index, solved.context(number, len(request.prompt)))
        return 1 + self.scenario.most_drafts(fitting)

    def num_found(self, request: int, round_: int, n: int) -> int | None:
        """Return how many tokens there were to propose, by the reference; None for a draft that does not look."""
        match = self.reference.typed("propose.match", NgramMatch).get(Key(request, round_))
        if match is None:
            return None
        return n + 1 - match.place if match.length else 0
