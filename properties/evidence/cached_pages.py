"""What a prefix cache keeps: pages by their tokens, states of some of them, with locks and eviction (S-CACHE).

`P` page size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from draftproof.properties.values.observed import CachedPage, CachedPages, TokenIds


@dataclass
class Kept:
    """A page in the cache: when it was last used, whether it has tokens that were emitted, and how many run on it.

    It has a state if that was used or kept at a time above 0, `begun` from so often; it is a page of a request that
    `runs` until its owner gives it back.
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
    """Pages by all the tokens that their entries are made of; so many `slots` for states, None of a dense model."""

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
        """Return the pages that are kept of the beginning of a text, but for what has to run in any case."""
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
        self.counts["prefix_shared"] += any(one.locks for one in found)
        self.counts["prefix_hits_on_running"] += any(one.runs for one in found)

    def keep(self, text: TokenIds, extended: int, pages: list[int], path: list[Kept], prompt: int) -> list[Kept]:
        """Keep what is final of a request that goes on, up to the first page of which there is another."""
        for number in range(len(path), min(self._final(extended), len(pages))):
            key = self.key(text, number)
            if key in self.kept:
                break
            one = Kept(pages[number], (number + 1) * self.page_size > prompt, locks=1, runs=True)
            path.append(one)
            self.kept[key] = one
        return path

    def take_back(self, text: TokenIds, extended: int, pages: list[int], path: list[Kept], prompt: int) -> list[Kept]:
        """Keep what is final of a request's pages; its prompt has so many tokens."""
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
        """Keep the state after so many tokens, if a page of the path ends there and has none."""
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
            leaves = [key for key, one in self.kept.items() if not (one.locks or self._has_more(key))]
            if leaves:
                evicted = self.kept.pop(min(leaves, key=lambda key: self.kept[key].used))
                self.counts["prefix_evictions"] += 1
                self.counts["checkpoints_evicted_with_pages"] += evicted.state > 0

    def report(self) -> CachedPages:
        pages = (CachedPage(one.page, one.locks, key) for key, one in self.kept.items())
        return tuple(sorted(pages, key=lambda one: one.page))

    def states(self, after: int = 0) -> frozenset[TokenIds]:
        """Return the tokens of pages whose state was kept or used later than a time."""
        return frozenset(key for key, one in self.kept.items() if one.state > after)

    def _has_more(self, key: TokenIds) -> bool:
        longer = len(key) + self.page_size
        return any(len(other) == longer and other[: len(key)] == key for other in self.kept)

    def _use(self, pages: Iterable[Kept]) -> None:
        self.time += 1
        for one in pages:
            one.used = self.time
