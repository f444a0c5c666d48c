"""A prefix cache by definition: what it holds after every step, and what it serves (docs/semantics.md, S-CACHE).

It follows a run: who was admitted, preempted and done in which step, and which pages their tables had. What it knows of
texts is what the reference says. `P` page size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from draftproof.properties.evidence.schedule import Row
from draftproof.properties.evidence.tables import ObservedTables
from draftproof.properties.values.observed import CachedPage, CachedPages, PoolReport, TokenIds
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Key

Attempt = tuple[int, int]
"""A request, and how often it had been preempted before."""


class CacheHistory(NamedTuple):
    """Tokens `served` of what a round has to run, by (request, round), `pages` kept after each step, and its counts."""

    served: Mapping[tuple[int, int], int]
    pages: Mapping[int, CachedPages]
    counts: Mapping[str, int]


COUNTS = (
    "prefix_hits",
    "prefix_hits_in_part",
    "prefix_hits_of_whole",
    "prefix_hits_of_emitted",
    "prefix_hits_after_preemption",
    "prefix_misses",
    "prefix_shared",
    "prefix_copies",
    "prefix_evictions",
)
"""Requests that were served something; less than whole pages of their text, all but the last that is whole in the
cache, what another emitted, what they ran before a preemption; nothing; pages that another ran on at the time. Copies
that were freed, and pages that were evicted."""


@dataclass
class _Kept:
    """A page in the cache: when it was last used, whether it has tokens that were emitted, and how many run on it."""

    page: int
    is_emitted: bool
    used: int = 0
    locks: int = 0


@dataclass
class _Cache:
    """Pages by all the tokens that their entries are made of."""

    page_size: int
    lookahead: int
    kept: dict[TokenIds, _Kept] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    time: int = 0

    def key(self, text: TokenIds, page: int) -> TokenIds:
        return text[: (page + 1) * self.page_size + self.lookahead]

    def serve(self, text: TokenIds, *, is_resumed: bool) -> list[_Kept]:
        """Return the pages that a text begins on, locked."""
        most = (len(text) - max(1, self.lookahead)) // self.page_size
        found: list[_Kept] = []
        while len(found) < most and self.key(text, len(found)) in self.kept:
            found.append(self.kept[self.key(text, len(found))])
        self._count(text, found, most, is_resumed)
        self._use(found)
        for one in found:
            one.locks += 1
        return found

    def _count(self, text: TokenIds, found: list[_Kept], most: int, is_resumed: bool) -> None:
        self.counts["prefix_hits" if found else "prefix_misses"] += 1
        self.counts["prefix_hits_in_part"] += 0 < len(found) < most
        whole = len(text) == (most + 1) * self.page_size and any(key[: len(text)] == text for key in self.kept)
        self.counts["prefix_hits_of_whole"] += whole
        self.counts["prefix_hits_of_emitted"] += not is_resumed and any(one.is_emitted for one in found)
        self.counts["prefix_hits_after_preemption"] += is_resumed and bool(found)
        self.counts["prefix_shared"] += any(one.locks for one in found)

    def take_back(self, text: TokenIds, extended: int, pages: list[int], served: list[_Kept], prompt: int) -> None:
        """Keep what is final of a request's pages; its prompt has so many tokens."""
        for one in served:
            one.locks -= 1
        final = max(len(served), (extended - max(0, self.lookahead - 1)) // self.page_size)
        path = []
        for number, page in enumerate(pages[:final]):
            new = _Kept(page, (number + 1) * self.page_size > prompt)
            one = self.kept.setdefault(self.key(text, number), new)
            self.counts["prefix_copies"] += one.page != page
            path.append(one)
        self._use(path)

    def evict(self, count: int) -> None:
        for _ in range(count):
            leaves = [key for key, one in self.kept.items() if not (one.locks or self._has_more(key))]
            if leaves:
                del self.kept[min(leaves, key=lambda key: self.kept[key].used)]
                self.counts["prefix_evictions"] += 1

    def report(self) -> CachedPages:
        pages = (CachedPage(one.page, one.locks, key) for key, one in self.kept.items())
        return tuple(sorted(pages, key=lambda one: one.page))

    def _has_more(self, key: TokenIds) -> bool:
        longer = len(key) + self.page_size
        return any(len(other) == longer and other[: len(key)] == key for other in self.kept)

    def _use(self, pages: Iterable[_Kept]) -> None:
        self.time += 1
        for one in pages:
            one.used = self.time


class _Run:
    """The attempts of a run: their rows, and when their pages were given back."""

    def __init__(self, scenario: Scenario, script: Script, tables: ObservedTables) -> None:
        self.requests, self.solved, self.tables = scenario.requests, script.requests, tables
        schedule = tables.schedule
        self.spans = schedule.attempt_spans
        self.rows: dict[Attempt, list[Row]] = {}
        for row in schedule.rows:
            self.rows.setdefault((row.request, schedule.attempt(row)), []).append(row)
        self.preempted: dict[int, list[Attempt]] = {}
        self.done: dict[int, list[Attempt]] = {}
        self.aborted: dict[int, list[Attempt]] = {}
        for attempt in sorted(self.spans, key=self.admitted):
            abort, last = schedule.aborts.get(attempt[0]), self.spans[attempt][1]
            if (attempt[0], attempt[1] + 1) in self.spans:
                self.preempted.setdefault(self._preempted_in(attempt), []).append(attempt)
            elif abort is None:
                self.done.setdefault(last, []).append(attempt)
            else:
                ends = self.aborted if last >= abort.step - 1 else self.preempted
                ends.setdefault(last + 1, []).append(attempt)

    def admitted(self, attempt: Attempt) -> tuple[int, int, int]:
        """Return the place of an attempt in the order of admission."""
        return (self.spans[attempt][0], self.requests[attempt[0]].arrival, attempt[0])

    def beginning(self, step: int) -> list[Attempt]:
        """Return the attempts that are admitted in a step, in order."""
        return sorted((one for one, (first, _) in self.spans.items() if first == step), key=self.admitted)

    def text(self, attempt: Attempt) -> TokenIds:
        """Return what the prefill of an attempt has to run."""
        first, solved = self.rows[attempt][0], self.solved[attempt[0]]
        prompt = self.requests[attempt[0]].prompt
        if not 0 < first.round <= len(solved.rounds) + int(solved.aborted):
            return prompt
        return (prompt + solved.tokens)[: solved.context(first.round, len(prompt)) + 1]

    def give_back(
        self, attempt: Attempt, cache: _Cache, pages: list[int], served: list[_Kept], *, is_done: bool
    ) -> None:
        """Let the cache keep what it does of an attempt that is done, or gave way."""
        prompt, emitted = self.requests[attempt[0]].prompt, self.solved[attempt[0]].tokens
        cache.take_back(prompt + emitted, self._extended(attempt, is_done), pages, served, len(prompt))

    def _extended(self, attempt: Attempt, is_done: bool) -> int:
        """Return the context up to which its draft was extended: in the round that ends a request nothing is.

        Nor does one count that ran a text again, or for the first time, and did not get to its end.
        """
        last, solved = self.rows[attempt][-1], self.solved[attempt[0]]
        if (is_done and not last.phase) or self.tables.schedule.is_unfinished(last):
            return 0
        number = last.round if is_done else last.round + 1
        known = 0 < number <= len(solved.rounds) + int(solved.aborted)
        return solved.context(number, len(self.requests[attempt[0]].prompt)) if known else 0

    def pages(self, attempt: Attempt, step: int) -> list[int]:
        """Return the pages in its table after the rows that it ran up to a step."""
        ran = [row for row in self.rows[attempt] if row.step <= step]
        table = self.tables.at(ran[-1]) if ran else {}
        return [table[column] for column in sorted(table)]

    def _preempted_in(self, attempt: Attempt) -> int:
        """Return the step before which its pages were taken: the first after which it owns none."""
        last, again = self.spans[attempt][1], self.spans[attempt[0], attempt[1] + 1][0]
        reports = self.tables.trace.typed("pool.owners", PoolReport)
        for step in range(last + 1, again):
            report = reports.get(Key(-1, step))
            if report and all(owner.request != attempt[0] for owner in report.owners):
                return step
        return again


def history(scenario: Scenario, script: Script, tables: ObservedTables, lookahead: int) -> CacheHistory:
    """Return what a prefix cache does in a run whose requests came, went and took pages as these did.

    An entry of the draft is made of so many tokens behind its own, the `lookahead`.
    """
    run, cache = _Run(scenario, script, tables), _Cache(tables.page_size, lookahead)
    held: dict[Attempt, list[int]] = {}
    began: dict[Attempt, list[_Kept]] = {}
    served, kept = dict[tuple[int, int], int](), dict[int, CachedPages]()
    for step in range(tables.schedule.last_step + 2):
        for attempt in run.aborted.get(step, []):
            run.give_back(attempt, cache, held.pop(attempt, []), began.pop(attempt, []), is_done=False)
        for attempt in reversed(run.preempted.get(step, [])):
            run.give_back(attempt, cache, held.pop(attempt, []), began.pop(attempt, []), is_done=False)
        for attempt in run.beginning(step):
            began[attempt] = cache.serve(run.text(attempt), is_resumed=attempt[1] > 0)
            held[attempt] = [one.page for one in began[attempt]]
            served[attempt[0], run.rows[attempt][0].round] = len(began[attempt]) * tables.page_size
        after = {attempt: run.pages(attempt, step) for attempt in held}
        missing = sum(max(0, len(after[attempt]) - len(pages)) for attempt, pages in held.items())
        used = {page for pages in held.values() for page in pages} | {one.page for one in cache.kept.values()}
        cache.evict(missing - (scenario.memory.pages - len(used)))
        held = after
        for attempt in run.done.get(step, []):
            run.give_back(attempt, cache, held.pop(attempt, []), began.pop(attempt, []), is_done=True)
        kept[step] = cache.report()
    return CacheHistory(served, kept, cache.counts)
