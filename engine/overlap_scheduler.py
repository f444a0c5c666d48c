"""Scheduling while a step runs: by what is known of the steps before it, and bounds on what is not.

Sources: vLLM's `AsyncScheduler` (placeholders of tokens that are not known, no step behind an end that is certain) and
SGLang's overlap scheduling (docs/semantics/overlap.md, S-OVERLAP).
"""

from __future__ import annotations

from draftproof.engine import stopping
from draftproof.engine.logprobs import TokenLogprob
from draftproof.engine.scheduler import Scheduler
from draftproof.engine.sequence import Sequence
from draftproof.engine.stages import Commit, DecodeRow, PrefillRow, Retired, StepPlan


class OverlapScheduler(Scheduler):
    """A scheduler in which `Sequence.seq_len` is an upper bound, and `emitted` what is known so far."""

    def last_context(self, request: int) -> int:
        """Return the largest n + K that a round of a request may have."""
        of = self.find(request).request
        return min(self._config.max_len - 1, len(of.prompt) + of.budget - 2)

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
            self._bound(sequence)

    def receive_prompt(
        self, row: PrefillRow, token: int, told: tuple[tuple[int, TokenLogprob], ...] = ()
    ) -> Commit | None:
        """Take in what a chunk has told, and after the last one the first token."""
        sequence = self.find(row.request.id)
        sequence.told += told
        self._process(sequence, row.start, row.end)
        if row.tail >= 0:
            sequence.extended = row.end
            return None
        emitted, finished = self._cut(sequence, (token,))
        return Commit.of(row, 0, emitted, row.end, finished, sequence.told)

    def receive_round(self, row: DecodeRow, tokens: tuple[int, ...]) -> Commit | None:
        """Take in the tokens that a round has committed; None if the request had ended before it."""
        sequence = self.find(row.request.id)
        if sequence.ended:
            sequence.in_flight.pop(0)
            return None
        before = sequence.known_len
        sequence.known_len += len(tokens)
        self._process(sequence, before, sequence.known_len)
        emitted, finished = self._cut(sequence, tokens)
        return Commit.of(row, before, emitted, sequence.known_len, finished)

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

    def known_length(self, request: int) -> int:
        """Return the length of a request as far as the host knows it."""
        return self._known_length(self.find(request))

    def retire_ended(self) -> Retired:
        """Free the memory of requests that have ended and have nothing in flight, and keep what is final of all."""
        return self._retired([one.request.id for one in self.live if one.ended and not one.in_flight])

    def _known_length(self, sequence: Sequence) -> int:
        return sequence.known_len

    def _process(self, sequence: Sequence, start: int, end: int) -> None:
        """Take in that a chunk or a round went from `start` to `end`."""
        sequence.processed = end
        interval = self._config.checkpoint
        sequence.checkpoints += bool(interval) and end // interval > start // interval

    def _final_length(self, sequence: Sequence) -> int:
        return sequence.processed

    def _checkpoint_place(self, sequence: Sequence) -> int:
        turn = sequence.checkpoints % self._config.checkpoint_turns
        return sequence.state_slot + turn * (self._config.checkpoint_range.stop)

    def _drop(self, sequence: Sequence) -> tuple[int, ...]:
        # A last chunk in flight still looks at what is behind its first row.
        return () if 0 in sequence.in_flight else super()._drop(sequence)

    def _cut(self, sequence: Sequence, tokens: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
        sequence.in_flight.pop(0)
        emitted, sequence.ended = sequence.gain(tokens, self._config)
        sequence.extended = sequence.extended if sequence.ended else sequence.known_len
        self._bound(sequence)
        return emitted, sequence.ended

    def _bound(self, sequence: Sequence) -> None:
        sequence.seq_len = sequence.known_len + sum(sequence.in_flight)

    def _ready(self) -> list[Sequence]:
        """Return the sequences past their prefill that may go on: each round in flight has one token at least."""
        return [one for one in super()._ready() if not self._is_over(one)]

    def _is_over(self, sequence: Sequence) -> bool:
        """Return whether a request has ended, or will have by its limits when the step in flight has run."""
        request, least = sequence.request, len(sequence.emitted) + len(sequence.in_flight)
        full = len(request.prompt) + least >= self._config.max_len
        return sequence.ended or full or least >= request.budget

    def _round(self, sequence: Sequence, steps: int) -> DecodeRow:
        """Return a round by bounds: its length and its drafts are the most, and its token is not known."""
        request = sequence.request
        wanted = request.num_drafts_wanted[sequence.rounds % len(request.num_drafts_wanted)]
        return DecodeRow(
            request,
            sequence.req_row,
            sequence.rounds + 1,
            sequence.seq_len,
            -1,
            min(wanted, steps),
            sequence.state_slot,
            stopping.minimum(request, len(sequence.emitted), self._config.eos),
        )

    def _pages_of(self, row: DecodeRow) -> int:
        """Return how many pages hold a request with its round, however far it has come."""
        request = row.request
        most = min(self._config.max_len, len(request.prompt) + request.budget)
        if self._config.tree:
            return self._pages_to(min(row.seq_len, most) + self._config.num_columns(row.num_drafts))
        return min(super()._pages_of(row), self._pages_to(most))
