"""Continuous batching: which requests are admitted, prefilled in chunks, decoded and preempted, with how many drafts.

With preemption pages are taken on demand (S-SCHED-8): the rule of vLLM's scheduler for who gives
way, and of SGLang's `retract_decode` for what can be taken back: a request that decodes, and none in its prefill.

With an overlap a step is planned while the one before runs, by what is known and bounds on what is not: vLLM's
`AsyncScheduler` (placeholders of tokens that are not known, no step behind an end that is certain) and SGLang's overlap
scheduling (docs/semantics/overlap.md, S-OVERLAP).
"""

from __future__ import annotations

import bisect
import random
import sys
from collections.abc import Callable

from msgspec.structs import replace

from draftproof.engine import stopping
from draftproof.engine.config import EngineConfig
from draftproof.engine.kv_transfer import KvTransfer
from draftproof.engine.logprobs import TokenLogprob
from draftproof.engine.pages import PagePool, PageTable
from draftproof.engine.prefix_cache import Evicted, PrefixCache
from draftproof.engine.sequence import Sequence, Waiting
from draftproof.engine.stages import (
    Commit,
    DecodeRow,
    GenerationRequest,
    KeptState,
    PrefillRow,
    Released,
    Retired,
    StepPlan,
)
from draftproof.engine.states.slots import StateSlots


class Scheduler:
    """Owns the page pool, the request table, the prefix cache, the state slots, the waiting queue and live sequences.

    There are as many state slots as request rows, or none for a model without states.
    """

    def __init__(
        self,
        config: EngineConfig,
        pool: PagePool,
        page_table: PageTable,
        cache: PrefixCache,
        states: StateSlots | None,
        window: int = 0,
    ) -> None:
        """`window`: how many positions before the next one are ever looked at again, itself included (0: all)."""
        self._config, self.pool, self.page_table, self.cache, self.states = config, pool, page_table, cache, states
        self._window = window
        self._waiting: list[Waiting] = []
        self._refused: list[Waiting] = []
        self._added = 0
        self._sequences: dict[int, Sequence] = {}

    def add(self, request: GenerationRequest, vocab: int = sys.maxsize) -> None:
        """Queue a request, or one that cannot be served until the step in which it comes."""
        need = self._pages_to(len(request.prompt)) if self._config.preemption else self._pages(request)
        fits = len(request.prompt) < self._config.max_len and need <= self._config.pages
        error = stopping.error(request, vocab) if fits else "length"
        (self._refused if error else self._waiting).append(Waiting(request, self._added, error=error))
        self._added += 1

    def refuse(self, step: int) -> tuple[Commit, ...]:
        """End the requests that came by this step and cannot be served; they never held anything."""
        ended = [one for one in self._refused if one.request.arrival <= step]
        self._refused = [one for one in self._refused if one.request.arrival > step]
        return tuple(Commit(one.request.id, 0, 0, 0, 0, (), 0, finished=True, error=one.error) for one in ended)

    def receive(self, transfer: KvTransfer) -> None:
        """Queue a request whose text another engine ran."""
        self._waiting.append(Waiting(transfer.request, transfer.order, rounds=transfer.rounds, transfer=transfer))

    def resume(self, waiting: Waiting) -> None:
        """Queue a request that gave way, in the order in which requests came."""
        bisect.insort(self._waiting, waiting, key=lambda one: one.order)

    def turned_away(self) -> list[Waiting]:
        """Take those out of the queue who gave way, and were to come by a transfer."""
        away = [one for one in self._waiting if not one.transfer]
        self._waiting = [one for one in self._waiting if one.transfer]
        return away

    @property
    def live(self) -> tuple[Sequence, ...]:
        """Return the live sequences, in the order of admission."""
        return tuple(self._sequences.values())

    @property
    def unfinished(self) -> int:
        return len(self._waiting) + len(self._sequences) + len(self._refused)

    @property
    def idle(self) -> bool:
        return not self.unfinished

    def abort(self, step: int) -> list[Released]:
        """Take requests that are to be aborted in this step out of the queue, and free what they own."""
        self._waiting = [waited for waited in self._waiting if waited.request.abort_at != step]
        return [self._release(sequence) for sequence in self.live if sequence.request.abort_at == step]

    def plan(self, step: int, steps_of: Callable[[int], int]) -> StepPlan:
        """Preempt and admit, then plan a chunk of every sequence in prefill and a round of the others.

        Each gets its pages. `steps_of` gives the most drafts that a row may have in a decode batch of that many rows.
        """
        preempted = self._preempt(steps_of)
        installed = () if preempted else self._admit(step, steps_of)
        prefill, decode = self._batches(steps_of)
        self._permute(decode, step)
        wanted = [(row.req_row, self._pages_to(row.end)) for row in prefill]
        wanted += [(row.req_row, self._pages_of(row)) for row in decode]
        evicted = self._evict(wanted)
        self.page_table.grow(wanted, self.pool)
        return StepPlan(step, steps_of(len(decode)), tuple(prefill), tuple(decode), preempted, *evicted, installed)

    def find(self, request: int) -> Sequence:
        return self._sequences[request]

    def launched(self, plan: StepPlan) -> None:
        """Go on as if a step had run, as far as that is known."""
        for chunk in plan.prefill:
            sequence = self.find(chunk.request.id)
            sequence.prefilled = sequence.seq_len = sequence.known_len = chunk.end
            sequence.chunks += 1
            if chunk.tail < 0:
                sequence.rounds = chunk.round
                sequence.in_flight.append(0)
        for row in plan.decode:
            sequence = self.find(row.request.id)
            sequence.rounds += 1
            sequence.in_flight.append(row.num_drafts + 1)
            sequence.seq_len += row.num_drafts + 1

    def receive_prompt(
        self, row: PrefillRow, token: int, told: tuple[tuple[int, TokenLogprob], ...] = ()
    ) -> Commit | None:
        """Take in what a chunk has told, and after the last one the target's token."""
        sequence = self.find(row.request.id)
        sequence.told += told
        self._process(sequence, row.start, row.end)
        if row.tail >= 0:
            sequence.extended = row.end
            return None
        emitted, finished = sequence.gain((token,), self._config)
        self._settle(sequence, finished)
        # Of an engine that is prefill-only a request leaves with its prompt.
        sequence.ended = finished or self._config.prefill_only
        return Commit.of(row, 0, emitted, row.end, finished, sequence.told)

    def receive_round(self, row: DecodeRow, tokens: tuple[int, ...]) -> Commit | None:
        """Take in the accepted drafts and the bonus of a round; None if the request had ended before it.

        An end cuts what the round committed, but not where the device was not told of it: with an overlap.
        """
        sequence = self.find(row.request.id)
        if sequence.ended:
            sequence.in_flight.pop(0)
            return None
        before = sequence.known_len
        emitted, sequence.ended = sequence.gain(tokens, self._config)
        sequence.known_len += len(tokens if self._config.overlap else emitted)
        self._settle(sequence, sequence.ended)
        self._process(sequence, before, sequence.known_len)
        return Commit.of(row, before, emitted, sequence.known_len, sequence.ended)

    def _settle(self, sequence: Sequence, finished: bool) -> None:
        """Take what has been received out of what is in flight."""
        sequence.in_flight.pop(0)
        sequence.extended = sequence.extended if finished else sequence.known_len
        sequence.seq_len = sequence.known_len + sum(sequence.in_flight)

    def _process(self, sequence: Sequence, start: int, end: int) -> None:
        """Take in that a chunk or a round went from `start` to `end`."""
        sequence.processed = end
        if interval := self._config.checkpoint:
            sequence.checkpoints += end // interval > start // interval

    def last_context(self, request: int) -> int:
        """Return the largest n + K that a round of a request may have."""
        of = self.find(request).request
        return min(self._config.max_len - 1, len(of.prompt) + of.budget - 2)

    def known_length(self, request: int) -> int:
        """Return the length of a request as far as the host knows it."""
        return self.find(request).known_len

    def waits_for(self, plan: StepPlan) -> bool:
        """Return whether the next step cannot be planned before the results of this one are there (S-OVERLAP-10).

        Masks go by all tokens before a row, and an abort frees memory that nothing may write any more.
        """
        requests = [row.request for row in plan.prefill] + [row.request for row in plan.decode]
        needs_text = any(one.grammar or one.min_tokens or one.abort_at == plan.step + 1 for one in requests)
        return bool(requests) and (needs_text or self._may_run_out())

    def _may_run_out(self) -> bool:
        """Return whether the next step may have too few pages: each row may take as many more as a round has tokens."""
        if not self._config.preemption:
            return False
        texts = [one for one in self.live if one.in_prefill]
        left = [self._pages_to(len(one.waited.text)) - len(self.page_table.pages[one.req_row]) for one in texts]
        rounds = (len(self.live) - len(texts)) * self._pages_to(self._config.num_columns(max(self._config.candidates)))
        return self.pool.free + self.cache.evictable < sum(left) + rounds

    def retire(self) -> Retired:
        """Free what ended requests own that have nothing in flight, and keep what is final of all, as admitted."""
        over = [one.request.id for one in self.live if one.ended and not one.in_flight]
        if not (over or self.cache.keeps or self._window):
            return Retired()
        released, kept, dropped = list[Released](), dict[int, KeptState](), list[int]()
        for sequence in self.live:
            if sequence.request.id in over:
                released.append(self._release(sequence))
            else:
                self._keep(sequence)
                dropped += self._drop(sequence)
            tokens = self._checkpointed(sequence)
            slot = self.cache.keep_state(sequence.cached, tokens)
            if slot:
                kept[slot] = KeptState(slot, self._checkpoint_place(sequence), sequence.request.id, tokens)
        if released or dropped:
            self.check()
        return Retired(tuple(released), tuple(kept.values()), tuple(dropped))

    def check(self) -> None:
        """Raise RuntimeError if pages are lost, or owned twice without being shared by the prefix cache."""
        cached = [node.page for node in self.cache.nodes()]
        rows, shared = range(len(self.page_table.pages)), set(cached)
        owned = [page for row in rows for page in self.page_table.owned(row) if page not in shared]
        self.pool.check(cached + owned)
        self.cache.check([sequence.cached for sequence in self.live])

    def _release(self, sequence: Sequence) -> Released:
        del self._sequences[sequence.request.id]
        if self.states:
            self.states.give_back(sequence.state_slot)
        pages = self.page_table.release(sequence.req_row)
        freed, sequence.cached = self.cache.insert(sequence.known, sequence.extended, pages, sequence.cached)
        self.pool.give_back(freed)
        return Released(sequence.request.id, sequence.req_row, freed, sequence.state_slot)

    def _keep(self, sequence: Sequence) -> None:
        """Let a prefix cache have the final pages of a sequence that goes on."""
        if self.cache.keeps:
            pages = self.page_table.pages[sequence.req_row]
            sequence.cached = self.cache.keep(sequence.known, sequence.extended, pages, sequence.cached)

    def _drop(self, sequence: Sequence) -> tuple[int, ...]:
        """Give back the pages that the rest of a sequence past its prefill never looks at."""
        # A last chunk in flight still looks at what is behind its first row.
        if self.cache.keeps or sequence.in_prefill or 0 in sequence.in_flight:
            return ()
        pages = self.page_table.drop(sequence.req_row, self.columns_behind(sequence.known_len))
        self.pool.give_back(pages)
        return pages

    def columns_behind(self, length: int) -> int:
        """Return how many columns no window reaches any more when so many tokens are committed."""
        return max(0, length + 1 - self._window) // self._config.page_size if self._window else 0

    def _checkpointed(self, sequence: Sequence) -> int:
        """Return how many tokens the checkpoint of a sequence is of."""
        interval = self._config.checkpoint
        return sequence.processed // interval * interval if interval else 0

    def _checkpoint_place(self, sequence: Sequence) -> int:
        """Return the place of the checkpoint of a sequence."""
        turn = sequence.checkpoints % self._config.checkpoint_turns
        return sequence.state_slot + turn * (self._config.checkpoint_range.stop)

    def _evict(self, wanted: list[tuple[int, int]]) -> Evicted:
        """Free pages of the cache, if there are fewer free pages than rows want."""
        if not self.cache.keeps:
            return Evicted()
        missing = sum(max(0, count - len(self.page_table.pages[row])) for row, count in wanted)
        evicted = self.cache.evict(missing - self.pool.free)
        self.pool.give_back(evicted.pages)
        return evicted

    def _preempt(self, steps_of: Callable[[int], int]) -> tuple[Released, ...]:
        """Take back what those own that were admitted last, until pages suffice for the round of all others."""
        preempted = []
        while self._config.preemption and self._spare(steps_of) < 0:
            last = [sequence for sequence in self.live if not sequence.in_prefill][-1]
            preempted.append(self._release(last))
            self.resume(Waiting(last.request, last.waited.order, tuple(last.emitted), last.rounds))
        return tuple(preempted)

    def _spare(self, steps_of: Callable[[int], int]) -> int:
        return self._spare_of(self._batches(steps_of)[1])

    def _spare_of(self, rounds: list[DecodeRow]) -> int:
        """Return how many pages are left when these rounds, and all prefills to their ends, have theirs."""
        wanted = {row.req_row: self._pages_of(row) for row in rounds}
        texts = (sequence for sequence in self.live if sequence.in_prefill)
        wanted |= {sequence.req_row: self._pages_to(len(sequence.waited.text)) for sequence in texts}
        owned = {row: len(self.page_table.pages[row]) for row in wanted}
        missing = sum(max(0, count - owned[row]) for row, count in wanted.items())
        return self.pool.free + self.cache.evictable - missing

    def _admit(self, step: int, steps_of: Callable[[int], int]) -> tuple[PrefillRow, ...]:
        """Admit requests in order of arrival; a request waits until a row and its pages are free.

        These are the pages of its worst case, or with preemption the pages of its prefill that it does not share.
        One that was transferred waits for a place in the decode batch, too: return the prompts of those.
        """
        installed = list[PrefillRow]()
        while self._waiting and self._waiting[0].request.arrival <= step and self.page_table.free:
            waited = self._waiting[0]
            has_place = not waited.transfer or len(self._sequences) < self._config.max_batch
            _, rounds, left = self._shared()
            if not has_place or not left:
                break
            cached = self.cache.match(waited.known, waited.most_served)
            if waited.transfer and self._config.preemption:
                need = self._pages(replace(waited.request, budget=len(waited.transfer.emitted)))
                spare = self._spare_of(rounds)
            elif self._config.preemption:
                need = self._pages_to(len(waited.text)) - sum(node.locks > 0 for node in cached)
                spare = self._spare(steps_of)
            else:
                need = self._pages_to(len(waited.text)) if self._config.prefill_only else self._pages(waited.request)
                spare = self._config.pages - sum(sequence.reserved for sequence in self._sequences.values())
            if need > spare:
                break
            del self._waiting[0]
            state_slot, req_row = self.states.take() if self.states else 0, self.page_table.take_row()
            self.cache.lock(cached)
            self.page_table.begin(req_row, [node.page for node in cached])
            emitted, start = list(waited.emitted), len(cached) * self._config.page_size
            sequence = Sequence(
                waited, req_row, state_slot, need, waited.rounds, emitted, cached, start, start, extended=start
            )
            if waited.transfer:
                installed.append(self._received(sequence, waited.transfer))
            self._sequences[waited.request.id] = sequence
        return tuple(installed)

    def _received(self, sequence: Sequence, transfer: KvTransfer) -> PrefillRow:
        """Let a sequence go on behind a text that another engine ran; return the text, with the token after it."""
        length = transfer.seq_len
        text = replace(self._chunk(sequence, length), end=length, emitted=transfer.emitted)
        sequence.prefilled = sequence.seq_len = sequence.extended = sequence.known_len = sequence.processed = length
        self.page_table.begin(sequence.req_row, (0,) * self.columns_behind(length))
        sequence.emitted += transfer.emitted
        return text

    def _pages_to(self, end: int) -> int:
        """Return how many pages hold positions 0 .. end - 1."""
        return -(-end // self._config.page_size)

    def _pages_of(self, row: DecodeRow) -> int:
        """Return how many pages hold a request with its round, however far it has come."""
        columns = self._config.num_columns(row.num_drafts)
        if not self._config.overlap:
            return self._pages_to(row.seq_len + columns)
        most = min(self._config.max_len, len(row.request.prompt) + row.request.budget)
        return self._pages_to(
            min(row.seq_len, most) + columns if self._config.tree else min(row.seq_len + columns, most)
        )

    def _pages(self, request: GenerationRequest) -> int:
        longest = min(self._config.max_len, len(request.prompt) + request.budget + self._config.most_width - 1)
        if self._config.tree:
            tokens = min(self._config.max_len, len(request.prompt) + request.budget)
            longest = tokens + self._config.num_columns(self._config.most_steps)
        return self._pages_to(longest)

    def _batches(self, steps_of: Callable[[int], int]) -> tuple[list[PrefillRow], list[DecodeRow]]:
        """Return the chunks and rounds of a step; a round has no more drafts than a batch of their number allows."""
        prefill, decode, _ = self._shared()
        limit, most = self._config.draft_batch, steps_of(len(decode))
        most = 0 if 0 < limit < len(decode) else most
        return prefill, [row.within(most) for row in decode]

    def _shared(self) -> tuple[list[PrefillRow], list[DecodeRow], int]:
        """Return a chunk of each sequence in prefill, a round of those past it (a batch at most), and the tokens left.

        In the order of admission they share the tokens of a step: a round gets fewer drafts, or none of them runs.
        """
        prefill, decode, left = list[PrefillRow](), list[DecodeRow](), self._config.token_budget or sys.maxsize
        rounds = {sequence.request.id for sequence in self._ready()[: self._config.max_batch]}
        most = self._config.most_steps
        for sequence in self.live:
            if left and sequence.request.id in rounds:
                row = self._round(sequence, most)
                decode.append(row.having(self._config.steps_within(row.num_drafts, left)))
                left -= self._config.num_drafts(decode[-1].num_drafts) + 1
            elif left and sequence.in_prefill:
                prefill.append(self._chunk(sequence, left))
                left -= prefill[-1].end - prefill[-1].start
        return prefill, decode, left

    def _chunk(self, sequence: Sequence, most: int) -> PrefillRow:
        waited, start = sequence.waited, sequence.prefilled
        end = min(len(waited.text), start + self._config.chunk, start + most)
        return PrefillRow(
            waited.request,
            sequence.req_row,
            sequence.chunks,
            start,
            end,
            sequence.state_slot,
            round=waited.rounds + 1 if waited.emitted else 0,
            emitted=waited.emitted,
            cached=sequence.served,
            checkpoint=0 if sequence.chunks or not sequence.served else sequence.cached[-1].checkpoint,
            minimum=stopping.minimum(waited.request, len(waited.emitted), self._config.eos),
            prompt_logprobs=waited.prompt_logprobs,
        )

    def _ready(self) -> list[Sequence]:
        """Return the sequences past their prefill that may go on, in the order of admission."""
        return [one for one in self.live if not (one.in_prefill or (one.in_flight and self._is_over(one)) or one.ended)]

    def _is_over(self, sequence: Sequence) -> bool:
        """Return whether a request will have ended by its limits when the step in flight has run.

        Each round in flight has one token at least.
        """
        request, least = sequence.request, len(sequence.emitted) + len(sequence.in_flight)
        return len(request.prompt) + least >= self._config.max_len or least >= request.budget

    def _permute(self, decode: list[DecodeRow], step: int) -> None:
        """Shuffle the rows of a step by the row seed; an odd one gives the reverse of the seed below it."""
        shuffling, reverses = divmod(self._config.row_seed, 2)
        if shuffling:
            random.Random(shuffling * 1000003 + step).shuffle(decode)
        if reverses:
            decode.reverse()

    def _round(self, sequence: Sequence, steps: int) -> DecodeRow:
        """Return a round, with an overlap by bounds: its length and its drafts are the most, its token is not known."""
        is_known = not self._config.overlap
        return DecodeRow(
            sequence.request,
            sequence.req_row,
            sequence.rounds + 1,
            sequence.seq_len,
            sequence.emitted[-1] if is_known else -1,
            sequence.num_drafts(self._config, steps) if is_known else min(sequence.wanted, steps),
            sequence.state_slot,
            stopping.minimum(sequence.request, len(sequence.emitted), self._config.eos),
        )
