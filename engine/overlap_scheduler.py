"""Scheduling while a step runs: by what is known of the steps before it, and bounds on what is not.

Sources: vLLM's `AsyncScheduler` (placeholders of tokens that are not known, no step behind an end that is certain) and
SGLang's overlap scheduling (docs/semantics/overlap.md, S-OVERLAP).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from draftproof.engine.logprobs import TokenLogprob
from draftproof.engine.scheduler import Scheduler, Sequence
from draftproof.engine.stages import Commit, DecodeRow, PrefillRow, Released, StepPlan


@dataclass
class Ahead:
    """What the host knows of a request that runs ahead of it.

    `length` is its length according to the results so far, `rounds` the most tokens that each round in flight may add;
    a prompt with a first token that is not known yet counts as a round that adds none.
    """

    length: int = 0
    rounds: list[int] = field(default_factory=list)
    ended: bool = False


class OverlapScheduler(Scheduler):
    """A scheduler in which `Sequence.seq_len` is an upper bound, and `emitted` what is known so far."""

    @cached_property
    def _by_request(self) -> dict[int, Ahead]:
        return {}

    def _ahead(self, sequence: Sequence) -> Ahead:
        return self._by_request.setdefault(sequence.request.id, Ahead())

    def last_context(self, request: int) -> int:
        """Return the largest n + K that a round of a request may have."""
        of = self.find(request).request
        return min(self._config.max_len - 1, len(of.prompt) + of.budget - 2)

    def launched(self, plan: StepPlan) -> None:
        """Go on as if a step had run, as far as that is known."""
        for chunk in plan.prefill:
            sequence = self.find(chunk.request.id)
            sequence.prefilled = sequence.seq_len = self._ahead(sequence).length = chunk.end
            sequence.chunks += 1
            if chunk.tail < 0:
                self._ahead(sequence).rounds.append(0)
        for row in plan.decode:
            sequence = self.find(row.request.id)
            sequence.rounds += 1
            self._ahead(sequence).rounds.append(row.num_drafts + 1)
            self._bound(sequence)

    def receive_prompt(
        self, row: PrefillRow, token: int, told: tuple[tuple[int, TokenLogprob], ...] = ()
    ) -> Commit | None:
        """Take in what a chunk has told, and after the last one the first token."""
        sequence = self.find(row.request.id)
        sequence.told += told
        if row.tail >= 0:
            return None
        emitted, finished = self._cut(sequence, (token,))
        place = (row.request.id, row.req_row, row.state_slot, row.round)
        return Commit(*place, 0, emitted, row.end, finished, prompt_logprobs=sequence.told)

    def receive_round(self, row: DecodeRow, tokens: tuple[int, ...]) -> Commit | None:
        """Take in the tokens that a round has committed; None if the request had ended before it."""
        sequence = self.find(row.request.id)
        ahead = self._ahead(sequence)
        if ahead.ended:
            ahead.rounds.pop(0)
            return None
        before = ahead.length
        ahead.length += len(tokens)
        emitted, finished = self._cut(sequence, tokens)
        place = (row.request.id, row.req_row, row.state_slot, row.round)
        return Commit(*place, before, emitted, ahead.length, finished)

    def known_length(self, request: int) -> int:
        """Return the length of a request as far as the host knows it."""
        return self._ahead(self.find(request)).length

    def retire_ended(self) -> tuple[Released, ...]:
        """Free the memory of requests that have ended and have nothing in flight."""
        over = [one for one in self.live if self._ahead(one).ended and not self._ahead(one).rounds]
        released = tuple(self._release(sequence) for sequence in over)
        for sequence in over:
            del self._by_request[sequence.request.id]
        if released:
            self.check()
        return released

    def _cut(self, sequence: Sequence, tokens: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
        ahead = self._ahead(sequence)
        ahead.rounds.pop(0)
        emitted, ahead.ended = sequence.gain(tokens, self._config)
        self._bound(sequence)
        return emitted, ahead.ended

    def _bound(self, sequence: Sequence) -> None:
        ahead = self._ahead(sequence)
        sequence.seq_len = ahead.length + sum(ahead.rounds)

    def _ready(self) -> list[Sequence]:
        """Return the sequences past their prefill that may go on: each round in flight has one token at least."""
        return [one for one in super()._ready() if not self._is_over(one)]

    def _is_over(self, sequence: Sequence) -> bool:
        """Return whether a request has ended, or will have by its limits when the step in flight has run."""
        ahead, request = self._ahead(sequence), sequence.request
        least = len(sequence.emitted) + len(ahead.rounds)
        full = len(request.prompt) + least >= self._config.max_len
        return ahead.ended or full or least >= request.budget

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
        )

    def _pages_of(self, row: DecodeRow) -> int:
        """Return how many pages hold a request with its round, however far it has come."""
        request = row.request
        most = min(self._config.max_len, len(request.prompt) + request.budget)
        return min(super()._pages_of(row), self._pages_to(most))
