"""What an overlap makes of a run, by definition: rounds after an end, what the host knows when, what it allocates.

`n` the context length of a round, `w` the drafts that it wants, `P` page size (docs/semantics/overlap.md, S-OVERLAP).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from draftproof.properties.evidence.schedule import Row
from draftproof.properties.values.observed import BufferKind
from draftproof.properties.values.trace import Key

if TYPE_CHECKING:
    from draftproof.properties.evidence.evidence import Evidence


class Use(NamedTuple):
    """The use of a buffer in an engine step: by the device (`side` 1) in a work, or by the host for it."""

    step: int
    kind: BufferKind
    side: int
    work: int
    waited: int


@dataclass(frozen=True)
class Overlap:
    """The overlap of one run; which batches there were is as the subject reports them."""

    evidence: Evidence

    @cached_property
    def ended_at(self) -> Mapping[int, int]:
        """request -> the engine step in which its last round ran, as its script has it."""
        ends, scripts = self.evidence.schedule.ends, enumerate(self.evidence.script.requests)
        found = {request: ends.get((request, len(script.rounds))) for request, script in scripts}
        return {request: step for request, step in found.items() if step is not None}

    @cached_property
    def runs_on(self) -> Mapping[int, int]:
        """request -> the engine step in which it runs a round after its end, if there is a place for it (S-OVERLAP-5).

        The host knows neither that it has ended, nor that it must have.
        """
        return {
            request: step + 1
            for request, step in self.ended_at.items()
            if self.evidence.schedule.lag(step) and not self.evidence.plans.is_sure_to_end(request)
        }

    def bound(self, row: Row) -> int:
        """Return the largest n that a decode row can have, as far as the host knows when it plans it (S-OVERLAP-3)."""
        before = self.evidence.schedule.in_flight_before(row.request, row.round)
        if before is None or not before.phase:
            return self.evidence.contexts[row.request, row.round]
        return self.evidence.contexts[row.request, before.round] + self.evidence.plans.drafts_wanted(before) + 1

    def columns(self, row: Row) -> int:
        """Return the columns of the page table that hold a decode row, however far its request has come."""
        request = self.evidence.scenario.requests[row.request]
        most = min(self.evidence.scenario.memory.max_len, len(request.prompt) + request.budget)
        columns = self.evidence.scenario.columns(self.evidence.plans.drafts_wanted(row))
        # Rows of a tree lie in columns of their own, which nothing bounds.
        return min(self.bound(row), most) + columns if self.evidence.form.tree else min(self.bound(row) + columns, most)

    @cached_property
    def pages(self) -> Mapping[tuple[int, int], int]:
        """Return how many pages a request has in a round, by (request, round): this row's, and those it had before."""
        most, found = dict[tuple[int, int], int](), dict[tuple[int, int], int]()
        for row in self.evidence.schedule.rows:
            attempt = (row.request, self.evidence.schedule.attempt(row))
            columns = self.columns(row) if row.phase else self._text(row)
            most[attempt] = max(most.get(attempt, 0), -(-columns // self.evidence.page_size))
            found[row.request, row.round] = most[attempt]
        return found

    def _text(self, row: Row) -> int:
        """Return how many tokens the prefill of a row runs."""
        prompt = len(self.evidence.scenario.requests[row.request].prompt)
        return self.evidence.script.requests[row.request].context(row.round, prompt) + 1 if row.round else prompt

    def last_context(self, request: int) -> int:
        """Return the length of a request that has ended, all that its last round accepted included (S-OVERLAP-4)."""
        length = self.evidence.reference.typed("commit.length", int)
        return length.get(Key(request, len(self.evidence.script.requests[request].rounds)), 0)

    def drafts_after_end(self, row: Row) -> int:
        """Return the drafts of a round after the end; -1 where the request has no position left for it."""
        n, memory = self.last_context(row.request), self.evidence.scenario.memory
        return self.evidence.plans.drafts_allowed(row, n) if n < memory.max_len else -1

    def is_after_end(self, row: Row) -> bool:
        """Return whether a row is of a round after the end of its request."""
        return row.phase > 0 and row.round > len(self.evidence.script.requests[row.request].rounds)

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        """Every use of a buffer in the order of the host's program (S-OVERLAP-7)."""
        return tuple(self._uses())

    def _uses(self) -> Iterator[Use]:
        schedule, waited = self.evidence.schedule, 0
        # Of ranks each gives its device what any of them runs.
        lockstep = self.evidence.lockstep
        steps = sorted({row.step for row in schedule.rows} | (lockstep.steps if lockstep else set()))
        works = {step: number for number, step in enumerate(steps, start=1)}
        for step in range(schedule.last_step + 1):
            prompts, rounds = ((step, phase) in schedule.batches for phase in (0, 1))
            if rounds:
                yield Use(step, BufferKind.INPUTS, 0, works[step], waited)
                yield Use(step, BufferKind.INPUTS, 1, works[step], waited)
                yield Use(step, BufferKind.ROUNDS, 1, works[step], waited)
            if prompts:
                yield Use(step, BufferKind.PROMPTS, 1, works[step], waited)
            for done in (step - 1, step):
                if done not in works or self._processed(done) != step:
                    continue
                waited = works[done]
                for phase, kind in ((0, BufferKind.PROMPTS), (1, BufferKind.ROUNDS)):
                    if (done, phase) in schedule.batches:
                        yield Use(step, kind, 0, waited, waited)

    def _processed(self, step: int) -> int:
        """Return the engine step in which the host processes the results of a step."""
        return step + self.evidence.schedule.lag(step)
