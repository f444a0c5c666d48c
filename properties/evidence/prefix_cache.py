"""A prefix cache by definition: what it holds after every step, and what it serves (docs/semantics/, S-CACHE).

It follows a run: which requests were admitted, preempted and done in which step, and which pages their tables had.
Texts are the reference's. `P` page size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from draftproof.properties.evidence.schedule import Row
from draftproof.properties.evidence.tables import ObservedTables
from draftproof.properties.values.observed import CachedPage, CachedPages, PoolReport, TokenIds
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Key


@dataclass
class Kept:
    """A page in the cache: when it was last used, whether it has emitted tokens, and how many requests run on it.

    It has a state if that was used or kept at a time above 0; `begun` counts the requests that began from it. It is a
    page of a request that `runs` until its owner gives it back.
    """

    page: int
    is_emitted: bool
    used: int = 0
    locks: int = 0
    state: int = 0
    begun: int = 0
    runs: bool = False


@dataclass
class PrefixModel:
    """Pages by all the tokens that their entries depend on; `slots` for states, None for a dense model."""

    page_size: int
    lookahead: int
    slots: int | None = None
    kept: dict[TokenIds, Kept] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    time: int = 0

    def key(self, text: TokenIds, page: int) -> TokenIds:
        return text[: (page + 1) * self.page_size + self.lookahead]

    def serve(self, text: TokenIds, *, is_resumed: bool, end: int | None = None) -> list[Kept]:
        """Return the pages that a text begins on, locked; no more than of `end` tokens, if that is given."""
        whole = self._whole(text)
        allowed = self._within(whole, end)
        self.counts["prefix_hits_cut_by_logprobs"] += len(allowed) < len(whole)
        found = self._with_state(allowed)
        self._begin(allowed, found)
        self._count(text, found, is_resumed)
        self._use(found)
        for one in found:
            one.locks += 1
        return found

    def locked(self, text: TokenIds, end: int | None = None) -> int:
        """Return how many pages that are locked a text would be served now."""
        return sum(one.locks > 0 for one in self._with_state(self._within(self._whole(text), end)))

    def _whole(self, text: TokenIds) -> list[Kept]:
        """Return the cached pages of the beginning of a text, without those that must be run in any case."""
        found: list[Kept] = []
        while len(found) < self._most(text) and self.key(text, len(found)) in self.kept:
            found.append(self.kept[self.key(text, len(found))])
        return found

    def _most(self, text: TokenIds) -> int:
        return (len(text) - max(1, self.lookahead)) // self.page_size

    def _within(self, pages: list[Kept], end: int | None) -> list[Kept]:
        return pages if end is None else pages[: end // self.page_size]

    def _with_state(self, found: list[Kept]) -> list[Kept]:
        """Return the pages up to the last one that has a state, where there are states."""
        if self.slots is None:
            return found
        return found[: max((number for number, one in enumerate(found, start=1) if one.state), default=0)]

    def _begin(self, allowed: list[Kept], found: list[Kept]) -> None:
        """Begin from the state behind the pages that were found, if there is one; others were allowed."""
        if self.slots is None:
            return
        self.counts["prefix_hits_cut_to_checkpoint"] += 0 < len(found) < len(allowed)
        self.counts["prefix_hits_without_checkpoint"] += not found and bool(allowed)
        if found:
            self.counts["prefix_hits_of_hybrids"] += 1
            self.counts["checkpoints_copied_again"] += found[-1].begun > 0
            found[-1].begun += 1
            found[-1].state = self.time + 1

    def _count(self, text: TokenIds, found: list[Kept], is_resumed: bool) -> None:
        most = self._most(text)
        self.counts["prefix_hits" if found else "prefix_misses"] += 1
        self.counts["prefix_hits_in_part"] += 0 < len(found) < most
        whole = len(text) == (most + 1) * self.page_size and any(key[: len(text)] == text for key in self.kept)
        self.counts["prefix_hits_of_whole"] += whole
        self.counts["prefix_hits_of_emitted"] += not is_resumed and any(one.is_emitted for one in found)
        self.counts["prefix_hits_after_preemption"] += is_resumed and bool(found)
        self.counts["prefix_hits_of_images"] += any(token < 0 for token in text[: len(found) * self.page_size])
        self.counts["prefix_shared"] += any(one.locks for one in found)
        self.counts["prefix_hits_on_running"] += any(one.runs for one in found)

    def keep(self, text: TokenIds, extended: int, pages: list[int], path: list[Kept], prompt: int) -> list[Kept]:
        """Keep the final pages of a request that goes on, up to the first page that the cache has already."""
        for number in range(len(path), min(self._final(extended), len(pages))):
            key = self.key(text, number)
            if key in self.kept:
                break
            one = Kept(pages[number], (number + 1) * self.page_size > prompt, locks=1, runs=True)
            path.append(one)
            self.kept[key] = one
        return path

    def take_back(self, text: TokenIds, extended: int, pages: list[int], path: list[Kept], prompt: int) -> list[Kept]:
        """Keep the final pages of a request that ends; the first `prompt` tokens are its prompt."""
        for one in path:
            one.locks -= 1
        final, whole = max(len(path), self._final(extended)), list[Kept]()
        for number, page in enumerate(pages[:final]):
            new = Kept(page, (number + 1) * self.page_size > prompt)
            one = self.kept.setdefault(self.key(text, number), new)
            self.counts["prefix_copies"] += one.page != page
            one.runs = one.runs and one.page != page
            whole.append(one)
        self._use(whole)
        return whole

    def keep_state(self, path: list[Kept], tokens: int) -> None:
        """Keep the state after `tokens` tokens, if a page of the path ends there and has none."""
        page, rest = divmod(tokens, self.page_size)
        if not self.slots or rest or not 0 < page <= len(path) or path[page - 1].state:
            return
        having = [one for one in self.kept.values() if one.state]
        if len(having) == self.slots:
            oldest = min(having, key=lambda one: one.state)
            oldest.state = oldest.begun = 0
            self.counts["checkpoints_evicted"] += 1
        self.time += 1
        path[page - 1].state = self.time
        self.counts["checkpoints_cached"] += 1

    def _final(self, extended: int) -> int:
        return max(0, extended - max(0, self.lookahead - 1)) // self.page_size

    def evict(self, count: int) -> None:
        for _ in range(count):
            continued = {key[: -self.page_size] for key in self.kept}
            leaves = [key for key, one in self.kept.items() if not one.locks and key not in continued]
            if leaves:
                evicted = self.kept.pop(min(leaves, key=lambda key: self.kept[key].used))
                self.counts["prefix_evictions"] += 1
                self.counts["checkpoints_evicted_with_pages"] += evicted.state > 0

    def report(self) -> CachedPages:
        pages = (CachedPage(one.page, one.locks, key) for key, one in self.kept.items())
        return tuple(sorted(pages, key=lambda one: one.page))

    def states(self, after: int = 0) -> frozenset[TokenIds]:
        """Return the tokens of pages whose state was kept or used later than the time `after`."""
        return frozenset(key for key, one in self.kept.items() if one.state > after)

    def _use(self, pages: Iterable[Kept]) -> None:
        self.time += 1
        for one in pages:
            one.used = self.time


Attempt = tuple[int, int]
"""A request, and how often it had been preempted before."""


class CacheHistory(NamedTuple):
    """Tokens `served` to a round by (request, round), the `pages` kept after each step, and the counts.

    For a model with linear layers there are also, by step, the tokens of pages with `states`, and of those `copied` in
    the step. `locked` has, for each step, how many pages the first in line would be served that other requests lock.
    """

    served: Mapping[tuple[int, int], int]
    pages: Mapping[int, CachedPages]
    counts: Mapping[str, int]
    states: Mapping[int, frozenset[TokenIds]]
    copied: Mapping[int, frozenset[TokenIds]]
    locked: Mapping[int, int]


Keep = Callable[[TokenIds, int, list[int], list[Kept], int], list[Kept]]


class _Run:
    """The attempts of a run: their rows, and when their pages were given back."""

    def __init__(self, scenario: Scenario, script: Script, tables: ObservedTables) -> None:
        self.requests, self.solved, self.tables = scenario.requests, script.requests, tables
        self.interval = scenario.states.checkpoint
        schedule = tables.schedule
        # Of two engines only the one that runs prompts has a cache (S-DISAGG-9).
        self.spans = {one: span for one, span in schedule.attempt_spans.items() if not schedule.engine(one[1])}
        self.rows: dict[Attempt, list[Row]] = {}
        for row in schedule.rows:
            self.rows.setdefault((row.request, schedule.attempt(row)), []).append(row)
        self.preempted: dict[int, list[Attempt]] = {}
        self.done: dict[int, list[Attempt]] = {}
        self.aborted: dict[int, list[Attempt]] = {}
        for attempt in sorted(self.spans, key=self.admitted):
            abort, last = schedule.aborts.get(attempt[0]), self.spans[attempt][1]
            if any(map(schedule.leaves, self.rows[attempt][-1:])):
                self.done.setdefault(last, []).append(attempt)
            elif (attempt[0], attempt[1] + 1) in self.spans:
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
        solved, prompt = self.solved[attempt[0]], self.requests[attempt[0]].known_prompt
        first = self._first_round(attempt)
        if not 0 < first <= len(solved.rounds) + int(solved.aborted):
            return prompt
        return (prompt + solved.tokens)[: solved.context(first, len(prompt)) + 1]

    def unasked(self, attempt: Attempt) -> int | None:
        """Return up to which position nothing is to be told of its prompt, None if nothing is at all."""
        asked = self.requests[attempt[0]].prompt_logprobs
        return asked.start if asked and not self._first_round(attempt) else None

    def _first_round(self, attempt: Attempt) -> int:
        """Return the round of its first chunk, or that it would have run next if it never ran."""
        return self.rows[attempt][0].round if attempt in self.rows else self.solved[attempt[0]].ended

    def kept(self, attempt: Attempt, step: int, keep: Keep, pages: list[int], path: list[Kept]) -> list[Kept]:
        """Let the cache keep what it does of an attempt after a step, by one of its two ways."""
        prompt, emitted = self.requests[attempt[0]].known_prompt, self.solved[attempt[0]].tokens
        return keep(prompt + emitted, self._extended(attempt, step), pages, path, len(prompt))

    def checkpointed(self, attempt: Attempt, step: int) -> int:
        """Return how many tokens the checkpoint of an attempt is of."""
        ran = self._processed(attempt, step)
        return self._committed(ran[-1]) // self.interval * self.interval if ran and self.interval else 0

    def _committed(self, row: Row) -> int:
        """Return the context that the device has committed a state for: with an overlap it knows of no end."""
        rounds = self.solved[row.request].rounds
        if not (row.phase and self.tables.schedule.overlap) or row.round > len(rounds):
            return self._context(row)
        return rounds[row.round - 1].context + rounds[row.round - 1].correct_len + 1

    def _extended(self, attempt: Attempt, step: int) -> int:
        """Return the context up to which its draft was extended: in the round that ends a request nothing is."""
        ran = self._processed(attempt, step)
        if not ran:
            return 0
        return self._before(ran[-1]) if self._ends_with(attempt, ran[-1]) else self._context(ran[-1])

    def _processed(self, attempt: Attempt, step: int) -> list[Row]:
        """Return the rows whose results the host has by the end of a step, without rounds after the end."""
        rounds, done = len(self.solved[attempt[0]].rounds), self.tables.schedule.done
        last = rounds + int(self.solved[attempt[0]].aborted)
        return [row for row in self.rows[attempt] if done(row) <= step and row.round <= last]

    def _ends_with(self, attempt: Attempt, row: Row) -> bool:
        """Return whether a row ends its request, which was not aborted."""
        whole = [one for one in self.rows[attempt] if one.round <= len(self.solved[row.request].rounds)]
        is_over = any(attempt in ended for ended in self.done.values()) and row == whole[-1]
        return is_over and not self.tables.schedule.leaves(row)

    def _before(self, row: Row) -> int:
        """Return the context that a row goes on from."""
        if not row.phase:
            return self.tables.schedule.chunk_starts[row.request, row.round, row.chunk]
        rounds = self.solved[row.request].rounds
        return rounds[row.round - 1].context if 0 < row.round <= len(rounds) else 0

    def _context(self, row: Row) -> int:
        """Return the context after a row."""
        if not row.phase:
            return self._before(row) + row.count
        rounds = self.solved[row.request].rounds
        if 0 < row.round <= len(rounds):
            return rounds[row.round - 1].context + len(rounds[row.round - 1].emitted)
        return 0

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


def history(
    scenario: Scenario, script: Script, tables: ObservedTables, lookahead: int, *, is_hybrid: bool
) -> CacheHistory:
    """Return what a prefix cache does in a run whose requests came, went and took pages as these did.

    Without a prefix cache everything is empty. An entry of the draft depends on `lookahead` tokens behind its own.
    """
    if not scenario.schedule.prefix_cache:
        return CacheHistory({}, {}, {}, {}, {}, {})
    slots = scenario.memory.checkpoint_slots if is_hybrid else None
    run, cache = _Run(scenario, script, tables), PrefixModel(tables.page_size, lookahead, slots)
    held: dict[Attempt, list[int]] = {}
    paths: dict[Attempt, list[Kept]] = {}
    served, kept = dict[tuple[int, int], int](), dict[int, CachedPages]()
    states, copied = dict[int, frozenset[TokenIds]](), dict[int, frozenset[TokenIds]]()
    locked, arrivals = dict[int, int](), [one.arrival for one in scenario.requests]
    for step in range(tables.schedule.last_step + 2):
        for attempt in run.aborted.get(step, []):
            run.kept(attempt, step, cache.take_back, held.pop(attempt, []), paths.pop(attempt, []))
        for attempt in reversed(run.preempted.get(step, [])):
            run.kept(attempt, step, cache.take_back, held.pop(attempt, []), paths.pop(attempt, []))
        for attempt in run.beginning(step):
            end = run.unasked(attempt)
            paths[attempt] = cache.serve(run.text(attempt), is_resumed=attempt[1] > 0, end=end)
            held[attempt] = [one.page for one in paths[attempt]]
            served[attempt[0], run.rows[attempt][0].round] = len(held[attempt]) * tables.page_size
        waiting = tables.schedule.first_waiting(step, held, arrivals) if scenario.schedule.preemption else None
        locked[step] = cache.locked(run.text(waiting), run.unasked(waiting)) if waiting else 0
        after = {attempt: run.pages(attempt, step) for attempt in held}
        missing = sum(max(0, len(after[attempt]) - len(pages)) for attempt, pages in held.items())
        used = {page for pages in held.values() for page in pages} | {one.page for one in cache.kept.values()}
        cache.evict(missing - (scenario.memory.pages - len(used)))
        before = cache.time
        for attempt, pages in after.items():
            ends = attempt in run.done.get(step, [])
            path = run.kept(attempt, step, cache.take_back if ends else cache.keep, pages, paths[attempt])
            cache.keep_state(path, run.checkpointed(attempt, step))
        held = {attempt: pages for attempt, pages in after.items() if attempt not in run.done.get(step, [])}
        kept[step], states[step], copied[step] = cache.report(), cache.states(), cache.states(before)
    return CacheHistory(served, kept, cache.counts, states, copied, locked)
