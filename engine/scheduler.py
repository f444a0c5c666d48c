"""Continuous batching: who is admitted, prefilled in chunks, decoded, and how many drafts each row gets."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from draftproof.engine.config import EngineConfig
from draftproof.engine.pages import PagePool, PageTable
from draftproof.engine.stages import Commit, DecodeRow, GenerationRequest, PrefillRow, StepPlan
from draftproof.engine.states.slots import StateSlots


@dataclass
class Sequence:
    """A live request; owned by the scheduler, changed only by `commit` and by its own prefill."""

    request: GenerationRequest
    req_row: int
    state_slot: int
    reserved: int
    prefilled: int = 0
    chunks: int = 0
    rounds: int = 0
    seq_len: int = 0
    emitted: list[int] = field(default_factory=list)

    @property
    def in_prefill(self) -> bool:
        return not self.emitted

    def num_drafts(self, config: EngineConfig, steps: int) -> int:
        """Return K of the next round: as wanted, within the steps in force and what positions and tokens are left."""
        wanted = min(steps, self.request.num_drafts_wanted[self.rounds % len(self.request.num_drafts_wanted)])
        budget_left = self.request.budget - len(self.emitted)
        return max(0, min(wanted, config.max_len - 1 - self.seq_len, budget_left - 1))

    def cut(self, tokens: tuple[int, ...], max_len: int) -> tuple[tuple[int, ...], bool]:
        """Return the tokens up to the first that ends the request, and whether one did."""
        taken: list[int] = []
        for token in tokens:
            taken.append(token)
            emitted = len(self.emitted) + len(taken)
            full = len(self.request.prompt) + emitted >= max_len
            if token in self.request.stop or emitted >= self.request.budget or full:
                return tuple(taken), True
        return tuple(taken), False


class Scheduler:
    """Owns the page pool, the request table, the state slots, the waiting queue and the live sequences.

    There are as many state slots as request rows, or none for a model without states.
    """

    def __init__(self, config: EngineConfig, pool: PagePool, page_table: PageTable, states: StateSlots | None) -> None:
        self._config, self.pool, self.page_table, self.states = config, pool, page_table, states
        self._waiting: deque[GenerationRequest] = deque()
        self.live: list[Sequence] = []

    def add(self, request: GenerationRequest) -> None:
        self._waiting.append(request)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self.live

    def plan(self, step: int, steps_of: Callable[[int], int]) -> StepPlan:
        """Admit, then one chunk for every sequence in prefill and one round for those past it; allocate their pages.

        `steps_of` gives the most drafts that a row may have in a decode batch of so many rows.
        """
        self._admit(step)
        prefill = tuple(self._chunk(sequence) for sequence in self.live if sequence.in_prefill)
        ready = [sequence for sequence in self.live if not sequence.in_prefill][: self._config.max_batch]
        if self._config.row_seed:
            random.Random(self._config.row_seed * 1000003 + step).shuffle(ready)
        limit = self._config.draft_batch
        steps = steps_of(len(ready))
        allowed = 0 if limit and len(ready) > limit else steps
        decode = tuple(self._round(sequence, allowed) for sequence in ready)
        page = self._config.page_size
        ends = [(row.req_row, row.end) for row in prefill] + [
            (row.req_row, row.seq_len + self._config.num_columns(row.num_drafts)) for row in decode
        ]
        self.page_table.grow([(row, -(-end // page)) for row, end in ends], self.pool)
        return StepPlan(step, steps, prefill, decode)

    def find(self, request: int) -> Sequence:
        return next(sequence for sequence in self.live if sequence.request.id == request)

    def commit_prefill(self, row: PrefillRow, first: int | None) -> Commit | None:
        """Record that a chunk has run; `first` is the target's token after the last chunk."""
        sequence = self.find(row.request)
        sequence.prefilled, sequence.chunks = row.end, sequence.chunks + 1
        sequence.seq_len = row.end
        if first is None:
            return None
        emitted, finished = sequence.cut((first,), self._config.max_len)
        sequence.emitted.extend(emitted)
        return Commit(row.request, row.req_row, row.state_slot, 0, 0, emitted, sequence.seq_len, finished)

    def commit(self, row: DecodeRow, tokens: tuple[int, ...]) -> Commit:
        """Append accepted drafts and bonus to the request."""
        sequence = self.find(row.request)
        emitted, finished = sequence.cut(tokens, self._config.max_len)
        sequence.emitted.extend(emitted)
        sequence.seq_len = row.seq_len + len(emitted)
        sequence.rounds += 1
        return Commit(
            row.request, row.req_row, row.state_slot, row.round, row.seq_len, emitted, sequence.seq_len, finished
        )

    def retire(self, commits: tuple[Commit, ...]) -> list[tuple[int, tuple[int, ...], int]]:
        """Free what finished requests own; return (row, pages, state slot) of each."""
        released = []
        for commit in commits:
            if commit.finished:
                sequence = self.find(commit.request)
                self.live.remove(sequence)
                if self.states:
                    self.states.give_back(sequence.state_slot)
                released.append(
                    (sequence.req_row, self.page_table.release(sequence.req_row, self.pool), sequence.state_slot)
                )
        self.check()
        return released

    def check(self) -> None:
        """Raise RuntimeError if pages are lost or owned twice."""
        self.pool.check([page for pages in self.page_table.pages for page in pages])

    def _admit(self, step: int) -> None:
        """First come, first served; a request waits until a row and its worst case of pages are there."""
        while self._waiting and self._waiting[0].arrival <= step and self.page_table.free:
            request = self._waiting[0]
            need = self._pages(request)
            if need > self._config.pages - sum(sequence.reserved for sequence in self.live):
                return
            self._waiting.popleft()
            state_slot = self.states.take() if self.states else 0
            self.live.append(Sequence(request, self.page_table.take_row(), state_slot, need))

    def _pages(self, request: GenerationRequest) -> int:
        longest = min(self._config.max_len, len(request.prompt) + request.budget + self._config.most_width - 1)
        if self._config.tree:
            tokens = min(self._config.max_len, len(request.prompt) + request.budget)
            longest = tokens + self._config.num_columns(self._config.steps)
        return -(-longest // self._config.page_size)

    def _chunk(self, sequence: Sequence) -> PrefillRow:
        prompt, start = sequence.request.prompt, sequence.prefilled
        end = min(len(prompt), start + self._config.chunk)
        return PrefillRow(
            sequence.request.id,
            sequence.req_row,
            sequence.chunks,
            start,
            end,
            prompt,
            sequence.state_slot,
            sequence.request.sampling,
            sequence.request.penalties,
        )

    def _round(self, sequence: Sequence, steps: int) -> DecodeRow:
        return DecodeRow(
            sequence.request.id,
            sequence.req_row,
            sequence.rounds + 1,
            sequence.seq_len,
            sequence.emitted[-1],
            sequence.num_drafts(self._config, steps),
            sequence.state_slot,
            sequence.request.sampling,
            sequence.request.penalties,
        )
