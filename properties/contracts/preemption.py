"""Pages on demand: which request is preempted when they run out, and which resumes, neither without need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from draftproof.properties.contracts.base import listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import Row
from draftproof.properties.values.adaptive_steps import AdaptiveByBatch
from draftproof.properties.values.relations import Missing, OutOfOrder, OutOfRange, Surplus
from draftproof.properties.values.scenario import Scenario, columns_freed, drafts_allowed, drafts_within, round_plan
from draftproof.properties.values.trace import Key

Attempt = tuple[int, int]
"""A request, and how often it had been preempted before."""


@dataclass(frozen=True)
class Holding:
    """How many pages each attempt of an engine held in each engine step."""

    evidence: Evidence
    of_engine: int = 0

    @cached_property
    def spans(self) -> dict[Attempt, tuple[int, int]]:
        """The steps from the first chunk of an attempt to its end, or to the step before its pages were taken."""
        schedule = self.evidence.schedule
        held = {}
        for (request, attempt), (first, last) in schedule.attempt_spans.items():
            if (request, attempt + 1) in schedule.attempt_spans:
                until = schedule.attempt_spans[request, attempt + 1][0]
                taken = (step for step in range(last + 1, until) if request in self.evidence.preempted(step))
                last = next(taken, until) - 1
            held[request, attempt] = (first, last)
        return held

    @property
    def on_demand(self) -> bool:
        """Whether pages are taken on demand: on the engine that decodes."""
        return self.evidence.scenario.schedule.preemption and self.of_engine == self.evidence.scenario.engines - 1

    def key(self, attempt: Attempt) -> Key:
        """Return the place of an attempt's first chunk."""
        if attempt in self.evidence.schedule.never:
            return Key(attempt[0], self.evidence.script.requests[attempt[0]].ended, step=0)
        first = self._of_attempts[attempt][0]
        return Key(first.request, first.round, step=first.chunk)

    def live(self, step: int) -> list[Attempt]:
        """Return the attempts that hold memory while a step runs."""
        spans, engine = self.spans.items(), self.evidence.schedule.engine
        return [one for one, (first, last) in spans if first <= step <= last and engine(one[1]) == self.of_engine]

    def taken(self, step: int) -> list[Attempt]:
        """Return the attempts that were preempted when a step began, in the order of their admission."""
        found = [one for one in self.live(step - 1) if self.spans[one][1] < step and self._waits_again(one, step)]
        return sorted(found, key=self.admitted)

    def _waits_again(self, attempt: Attempt, step: int) -> bool:
        """Return whether an attempt is not the last of its request, or its request is aborted behind a step."""
        abort = self.evidence.aborts.get(attempt[0])
        has_next = (attempt[0], attempt[1] + 1) in self.evidence.schedule.attempt_spans
        return has_next or (abort is not None and abort.step > step)

    def admitted(self, attempt: Attempt) -> tuple[int, int, int]:
        """Return the place of an attempt in the order of admission."""
        return (self.spans[attempt][0], *self.place(attempt))

    def place(self, attempt: Attempt) -> tuple[int, int]:
        """Return the place of an attempt in the line of its engine: when it came, and its place of that step."""
        arrival = self.evidence.scenario.requests[attempt[0]].arrival
        return self.evidence.schedule.came(*attempt, arrival)

    def needed(self, attempts: Iterable[Attempt], step: int) -> int:
        """Return the pages that these hold in a step, and keep for the rest of their prefills: shared ones once."""
        each = tuple(attempts)
        return len(self._held(each, step)) + sum(self._prefill_left(one, step) for one in each)

    def own(self, attempt: Attempt, others: Sequence[Attempt], step: int) -> int:
        """Return the pages that an attempt had for itself beside these before they were taken when a step began."""
        return len({*self._table(attempt, step).values()} - self._held(others, step - 1))

    def _held(self, attempts: Iterable[Attempt], step: int) -> set[int]:
        return {page for one in attempts for page in self._table(one, step).values()}

    def _table(self, attempt: Attempt, step: int) -> Mapping[int, int]:
        ran = self._ran(attempt, step)
        return self.evidence.kept_table(ran[-1], step) if ran else {}

    def _prefill_left(self, attempt: Attempt, step: int) -> int:
        """Return the pages that an attempt has yet to take for its prefill after a step."""
        ran = self._ran(attempt, step)
        if ran and ran[-1].phase:
            return 0
        return self.prefill_pages(attempt) - (len(self.evidence.tables.at(ran[-1])) if ran else 0)

    def lacking(self, attempts: Iterable[Attempt], step: int) -> int:
        """Return the pages that rounds of these attempts run without in a step."""
        rows = [row for one in attempts for row in self._of_attempts[one] if row.phase and row.step == step]
        return sum(self._lacking(row) for row in rows)

    def _lacking(self, row: Row) -> int:
        end = self.evidence.contexts[row.request, row.round] + self.evidence.columns(row)
        freed = self.evidence.freed_before(row.request, row.round)
        return max(0, -(-end // self.evidence.page_size) - freed - len(self.evidence.tables.at(row)))

    def _ran(self, attempt: Attempt, step: int) -> list[Row]:
        """Return the rows of an attempt up to a step; none if a wrong trace has its rows elsewhere."""
        return [row for row in self._of_attempts[attempt] if row.step <= step]

    def prefill_pages(self, attempt: Attempt) -> int:
        """Return the pages of all that the prefill of an attempt runs."""
        solved = self.evidence.script.requests[attempt[0]]
        prompt = tokens = len(self.evidence.scenario.requests[attempt[0]].prompt)
        first = solved.ended if attempt in self.evidence.schedule.never else self._of_attempts[attempt][0].round
        if 0 < first <= len(solved.rounds) + int(solved.aborted):
            tokens = solved.context(first, prompt) + 1
        return -(-tokens // self.evidence.page_size)

    def context(self, attempt: Attempt) -> int:
        """Return the tokens that are committed before the first round of an attempt, or before the one it never ran."""
        solved, prompt = self.evidence.script.requests[attempt[0]], self.evidence.scenario.requests[attempt[0]].prompt
        first = solved.ended if attempt in self.evidence.schedule.never else self._of_attempts[attempt][0].round
        is_known = 0 < first <= len(solved.rounds) + int(solved.aborted)
        return solved.context(first, len(prompt)) if is_known else 0

    def is_ready(self, attempt: Attempt, step: int) -> bool:
        """Return whether an attempt is past its prefill when a step begins."""
        chunks = [row for row in self._of_attempts[attempt] if not row.phase]
        if self.of_engine:
            return not chunks
        return bool(chunks) and chunks[-1].step < step and not self.evidence.schedule.is_unfinished(chunks[-1])

    def missing(self, attempt: Attempt, step: int) -> int:
        """Return the most pages that the next round of an attempt takes, which never ran, beside those it has."""
        last, shares = self._of_attempts[attempt][-1], self.evidence.plans.tokens_of_step(step)
        before = sum(shares.get(one[0], 0) for one in self.live(step) if self.admitted(one) < self.admitted(attempt))
        left = self.evidence.scenario.schedule.token_budget - before
        return max(0, self._wanted(attempt, last.round + 1, left) - len(self._table(attempt, step)))

    def more_drafts(self, attempt: Attempt, step: int) -> int:
        """Return the most additional pages that an attempt's round wants in a step if its batch were larger.

        The batch was larger with the request that was preempted, and step counts may depend on the size of a batch.
        """
        ran = [row.round for row in self._of_attempts[attempt] if row.step == step and row.phase]
        if not ran or not _goes_by_batch(self.evidence.scenario):
            return 0
        share = self.evidence.plans.tokens_of_step(step).get(attempt[0], 0)
        return max(0, self._wanted(attempt, ran[-1], share) - len(self._table(attempt, step)))

    def _wanted(self, attempt: Attempt, number: int, tokens: int) -> int:
        """Return the most pages that a round of an attempt may take with these tokens; none if there is none."""
        request = self.evidence.scenario.requests[attempt[0]]
        solved, memory = self.evidence.script.requests[attempt[0]], self.evidence.scenario.memory
        if number > len(solved.rounds) + int(solved.aborted):
            return 0
        context = solved.context(number, len(request.prompt))
        left = request.budget - (context + 1 - len(request.prompt))
        planned = min(round_plan(request, number).num_drafts, self.evidence.scenario.steps)
        if self.evidence.scenario.schedule.overlap:
            most = min(memory.max_len, len(request.prompt) + request.budget)
            ends = context + self.evidence.scenario.columns(planned)
            most = ends if self.evidence.scenario.tree else min(ends, most)
            return -(-most // memory.page_size) - columns_freed(self.evidence.scenario, context)
        drafts = drafts_allowed(planned, context=context, max_len=memory.max_len, budget_left=left)
        columns = self.evidence.scenario.columns(drafts)
        if self.evidence.scenario.schedule.token_budget:
            drafts = drafts_within(self.evidence.scenario, drafts, tokens)
            columns = self.evidence.scenario.columns(drafts) if tokens else 0
        freed = columns_freed(self.evidence.scenario, context)
        return -(-(context + columns) // memory.page_size) - freed

    @property
    def _of_attempts(self) -> Mapping[Attempt, list[Row]]:
        return self.evidence.schedule.rows_of


def _goes_by_batch(scenario: Scenario) -> bool:
    """Return whether the drafts of a round may depend on how many rows its batch has."""
    by_batch = isinstance(scenario.adaptive_steps, AdaptiveByBatch) or scenario.schedule.draft_batch > 0
    # Who is taken by a transfer has a round in that step (S-DISAGG-9).
    return by_batch or (scenario.engines > 1 and scenario.adaptive_steps is not None)


def _on_demand(evidence: Evidence) -> Iterator[Mismatch]:
    holding = Holding(evidence, evidence.scenario.engines - 1)
    for step in range(evidence.schedule.last_step + 1):
        live = holding.live(step)
        needed = holding.needed(live, step)
        yield from _gives_way(evidence, holding, step)
        if evidence.scenario.engines == 1:
            # With two engines another contract knows who comes to which of them.
            yield from _comes_back(evidence, holding, step, live, needed)
        yield from _fits(evidence, holding, step, live, needed)


def _gives_way(evidence: Evidence, holding: Holding, step: int) -> Iterator[Mismatch]:
    """Check that the requests admitted last are preempted, only where all of them need more pages than there are."""
    victims = holding.taken(step)
    if not victims:
        return
    first, pages = victims[0], evidence.scenario.memory.pages
    key = holding.key((first[0], first[1] + 1))
    before = [one for one in holding.live(step) if holding.spans[one][0] < step]
    ready = [one for one in before if holding.is_ready(one, step)]
    for other in sorted(ready):
        if holding.admitted(other) > holding.admitted(first):
            expected, got = f"request {other[0]} preempted in step {step}", f"request {first[0]}"
            yield Mismatch("round.attempt", key, expected, got, OutOfOrder())
    needed = holding.needed(before, step) + holding.own(first, before, step)
    needed += sum(holding.more_drafts(one, step) for one in before)
    if len(ready) < evidence.scenario.schedule.max_batch:
        # Behind a full batch it has no round that wants pages.
        needed += holding.missing(first, step)
    if needed <= pages:
        expected = f"preempted in step {step} for more than {pages} pages"
        yield Mismatch("round.attempt", key, expected, f"{needed} pages", OutOfRange())
    for other in holding.live(step):
        if holding.spans[other][0] == step:
            yield Mismatch("round.rows", holding.key(other), None, f"admitted in step {step}", Surplus())


def _fits(evidence: Evidence, holding: Holding, step: int, live: Sequence[Attempt], needed: int) -> Iterator[Mismatch]:
    """Check that the pages held in a step, those kept for prefills, and those that rounds run without exist.

    Else a request was admitted too early, or the last one that decodes had to give way.
    """
    pages = evidence.scenario.memory.pages
    needed += holding.lacking(live, step)
    if needed <= pages:
        return
    expected, got = f"at most {pages} pages held and kept in step {step}", f"{needed} pages"
    last = max(live, key=holding.admitted)
    if holding.spans[last][0] == step:
        yield Mismatch("round.rows", holding.key(last), expected, got, OutOfRange())
    else:
        ready = [one for one in live if holding.is_ready(one, step)]
        last = max(ready or live, key=holding.admitted)
        number = max(row.round for row in evidence.schedule.rows_of[last] if row.step <= step)
        yield Mismatch("round.attempt", Key(last[0], number), expected, got, OutOfRange())


def _comes_back(
    evidence: Evidence, holding: Holding, step: int, live: Sequence[Attempt], needed: int
) -> Iterator[Mismatch]:
    """Check that requests are admitted in order, and that the first in line waits only for pages or for a row."""
    first = evidence.schedule.first_waiting(step, live, [one.arrival for one in evidence.scenario.requests])
    if first is not None:
        # What it would be served that others have locked it need not have (S-CACHE-5).
        pages = needed + holding.prefill_pages(first) - evidence.prefixes.locked.get(step, 0)
        yield from in_line(holding, step, first, pages, evidence.scenario.memory.request_slots)


def in_line(holding: Holding, step: int, first: Attempt, pages: int, most: int) -> Iterator[Mismatch]:
    """Check that nobody is taken before the first in line, and that this one does not fit in a step.

    `pages` are those that the engine would have to have with it, and `most` the requests that it has at a time.
    """
    evidence, live = holding.evidence, holding.live(step)
    for one in live:
        if holding.spans[one][0] == step and holding.place(one) > holding.place(first):
            got = f"request {one[0]} in step {step}"
            yield Mismatch("round.rows", holding.key(one), f"request {first[0]} first", got, OutOfOrder())
    fits = pages <= evidence.scenario.memory.pages and len(live) < most
    has_tokens = evidence.plans.tokens_left(step, holding.of_engine) > 0
    if fits and has_tokens and not (holding.on_demand and holding.taken(step)):
        never = evidence.schedule.never
        got = f"aborted in step {never[first]}" if first in never else f"step {holding.spans[first][0]}"
        yield Mismatch("round.rows", holding.key(first), f"in step {step}", got, Missing())


CONTRACTS = (
    listed(
        "schedule.preemption",
        _on_demand,
        ("round.rows", "round.attempt"),
        reads=("round.table", "pool.owners"),
        partial=("round.rows", "round.attempt"),
        cites="S-SCHED-8",
        minimum="scenarios preemptions resumed_in_chunks",
        concerns=lambda evidence: evidence.scenario.schedule.preemption,
    ),
)
