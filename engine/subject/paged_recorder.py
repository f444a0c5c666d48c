"""What lies in pages and slots: page tables, owners and KV entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from draftproof.engine.cache import PagedCache
from draftproof.engine.engine import Engine
from draftproof.engine.prefix_cache import PrefixCache
from draftproof.engine.stages import Commit, StepPlan
from draftproof.engine.subject.observations import ObservationLog, vectors
from draftproof.properties.values.observed import (
    CachedCheckpoint,
    CachedPage,
    CheckpointReport,
    Owner,
    PoolReport,
    StatePoolReport,
)
from draftproof.properties.values.trace import Key


class EntrySpan(NamedTuple):
    """Positions start .. end-1 of the request of a commit."""

    commit: Commit
    start: int
    end: int


class PagedRecorder:
    """Reports round.table, round.state, commit.kv, extend.kv and pool.* of an engine.

    With a `prefill` engine pool.* covers both, and the prefill engine's pages are numbered behind the others.
    """

    def __init__(self, log: ObservationLog, engine: Engine, prefill: Engine | None = None) -> None:
        self._log, self._engine = log, engine
        self._engines = (engine, prefill) if prefill else (engine,)
        self._columns = dict[tuple[int, int], int]()

    def report_tables(self, plan: StepPlan) -> None:
        """Report the pages of each request of a step, and its state slot where there are states."""
        for chunk in plan.prefill:
            # Earlier chunks of the round reported the columns that there were, which may be more than they wrote to.
            place = (chunk.request.id, chunk.round)
            reported = self._columns.get(place, 0) if chunk.chunk else 0
            self._table(chunk.req_row, Key(*place), reported)
            self._columns[place] = len(self._engine.scheduler.page_table.pages[chunk.req_row])
            if not chunk.chunk:
                self._state_slot(chunk.state_slot, Key(chunk.request.id, chunk.round))
        for row in plan.decode:
            self._table(row.req_row, Key(row.request.id, row.round), 0)
            self._state_slot(row.state_slot, Key(row.request.id, row.round))

    def _table(self, row: int, key: Key, reported: int) -> None:
        pages = self._engine.scheduler.page_table.pages[row]
        for column in range(reported, len(pages)):
            if not pages[column]:
                # Given back, as no window reaches it.
                continue
            self._log.add("round.table", key._replace(row=column), pages[column])

    def _state_slot(self, slot: int, key: Key) -> None:
        if self._engine.states:
            self._log.add("round.state", key, slot)

    def report_entries(
        self, channel: str, cache: PagedCache, layers: Sequence[int], spans: Sequence[EntrySpan]
    ) -> None:
        """Report KV entries of the positions of spans, read at once where the requests' own tables say they are."""
        if not spans:
            return
        tables, size = self._engine.scheduler.page_table.pages, cache.page_size
        places = [range(span.start, min(span.end, len(tables[span.commit.req_row]) * size)) for span in spans]
        slots = [
            tables[span.commit.req_row][position // size] * size + position % size
            for span, positions in zip(spans, places, strict=True)
            for position in positions
        ]
        at = torch.tensor(slots, dtype=torch.int64).to(cache.page_table.device)
        read = [(layer, iter(vectors(cache.read(order, at)))) for order, layer in enumerate(layers)]
        for (commit, _, _), positions in zip(spans, places, strict=True):
            for layer, of_layer in read:
                for row in positions:
                    self._log.add(channel, Key(commit.request, commit.round, layer=layer, row=row), next(of_layer))

    def report_pools(self, step: int) -> None:
        """Report the owners of pages, slots and rows after an engine step."""
        key = Key(-1, step)
        schedulers = [engine.scheduler for engine in self._engines]
        tables = [one.page_table for one in schedulers]
        report = PoolReport(sum(one.pool.free for one in schedulers), sum(one.free for one in tables), self._owners())
        self._log.add("pool.owners", key, report)
        damaged = tuple(place for engine in self._engines for place in engine.arena.damaged())
        self._log.add("pool.guards", key, damaged)
        # With two engines the prefill engine has the cache.
        cache, number = schedulers[-1].cache, len(schedulers) - 1
        if cache.keeps:
            self._log.add("pool.cached", key, self._cached(cache, number * self._engine.config.pages))
        tracked = {int(request) for engine in self._engines for request in engine.draft.tracked_requests()}
        self._log.add("pool.drafts", key, tuple(sorted(tracked)))
        slots = [one.states for one in schedulers if one.states]
        if slots:
            free = sum(one.free for one in slots)
            self._log.add("pool.states", key, StatePoolReport(free, self._state_owners()))
        if cache.checkpoints and cache.keeps:
            kept = self._checkpoints(cache, number * self._engine.config.request_slots)
            self._log.add("pool.checkpoints", key, CheckpointReport(cache.checkpoints.free, kept))

    def _owners(self) -> tuple[Owner, ...]:
        owners = list[Owner]()
        for number, engine in enumerate(self._engines):
            owner = {sequence.req_row: int(sequence.request.id) for sequence in engine.scheduler.live}
            table, before = engine.scheduler.page_table, number * engine.config.pages
            rows = range(len(table.pages))
            owners += [Owner(before + page, owner.get(row, -1)) for row in rows for page in table.owned(row)]
        return tuple(sorted(owners))

    def _state_owners(self) -> tuple[Owner, ...]:
        live = [
            (number * engine.config.request_slots, sequence)
            for number, engine in enumerate(self._engines)
            for sequence in engine.scheduler.live
        ]
        return tuple(sorted(Owner(before + one.state_slot, int(one.request.id)) for before, one in live))

    def _cached(self, cache: PrefixCache, before: int) -> tuple[CachedPage, ...]:
        pages = (CachedPage(before + node.page, node.locks, cache.prefix(node)) for node in cache.nodes())
        return tuple(sorted(pages, key=lambda one: one.page))

    def _checkpoints(self, cache: PrefixCache, before: int) -> tuple[CachedCheckpoint, ...]:
        nodes = (node for node in cache.nodes() if node.checkpoint)
        kept = (CachedCheckpoint(before + node.checkpoint, cache.prefix(node)) for node in nodes)
        return tuple(sorted(kept, key=lambda one: one.slot))
