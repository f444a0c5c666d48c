"""Requests as a scheduler knows them: those that wait for memory, and those that have it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from draftproof.engine import stopping
from draftproof.engine.config import EngineConfig
from draftproof.engine.kv_transfer import KvTransfer
from draftproof.engine.logprobs import TokenLogprob
from draftproof.engine.prefix_cache import Node
from draftproof.engine.stages import GenerationRequest, PromptLogprobParams


@dataclass(frozen=True)
class Waiting:
    """A request that has no memory; one that was preempted has `emitted` tokens in `rounds` rounds.

    Of one whose prompt another engine ran `transfer` is what came from there, until it is installed. `error` is why it
    cannot be served.
    """

    request: GenerationRequest
    order: int
    emitted: tuple[int, ...] = ()
    rounds: int = 0
    transfer: KvTransfer | None = None
    error: str = ""

    @cached_property
    def text(self) -> tuple[int, ...]:
        """Return what its prefill runs."""
        return self.request.prompt + self.emitted

    @cached_property
    def known(self) -> tuple[int, ...]:
        """Return what a prefix cache knows its text by."""
        return _known(self.request, self.text)

    @property
    def prompt_logprobs(self) -> PromptLogprobParams | None:
        """Return what its prefill is to tell of the prompt: once."""
        return None if self.emitted else self.request.prompt_logprobs

    @property
    def most_served(self) -> int:
        """Return how many tokens a cache may serve it: it has no logits of them, and none behind them may be told."""
        return self.prompt_logprobs.start if self.prompt_logprobs else len(self.text)


@dataclass
class Sequence:
    """A live request; owned by the scheduler, changed only by `commit` and by its own prefill.

    The prefix cache has its first `cached` pages, and it was `served` that many tokens; entries of target and draft are
    written for its first `extended` tokens. `told` has its prompt logprobs, by position.

    With rounds in flight `seq_len` is the most that it can be, and `known_len` what the results so far say; `in_flight`
    has the most tokens that each of these rounds may add, 0 for a first token. `ended` says that nothing more counts.
    The results of `processed` tokens are there, and so many `checkpoints` were made in these.
    """

    waited: Waiting
    req_row: int
    state_slot: int
    reserved: int
    rounds: int
    emitted: list[int]
    cached: tuple[Node, ...] = ()
    served: int = 0
    prefilled: int = 0
    chunks: int = 0
    seq_len: int = 0
    extended: int = 0
    told: tuple[tuple[int, TokenLogprob], ...] = ()
    known_len: int = 0
    in_flight: list[int] = field(default_factory=list)
    ended: bool = False
    processed: int = 0
    checkpoints: int = 0

    @cached_property
    def request(self) -> GenerationRequest:
        return self.waited.request

    def take_transfer(self) -> KvTransfer:
        """Return what another engine transferred of the request, once."""
        transfer, self.waited = self.waited.transfer, replace(self.waited, transfer=None)
        assert transfer
        return transfer

    @property
    def known(self) -> tuple[int, ...]:
        """Return what a prefix cache knows its text by."""
        return _known(self.request, self.request.prompt + tuple(self.emitted))

    @property
    def in_prefill(self) -> bool:
        return self.prefilled < len(self.waited.text)

    @property
    def wanted(self) -> int:
        """Return how many drafts the request wants in its next round."""
        return self.request.num_drafts_wanted[self.rounds % len(self.request.num_drafts_wanted)]

    def num_drafts(self, config: EngineConfig, steps: int) -> int:
        """Return K of the next round: as wanted, within the steps in force and what positions and tokens are left."""
        left = self.request.budget - len(self.emitted) - 1
        return max(0, min(self.wanted, steps, config.max_len - 1 - self.seq_len, left))

    def gain(self, tokens: tuple[int, ...], config: EngineConfig) -> tuple[tuple[int, ...], bool]:
        """Emit tokens up to the first that ends the request; return them, and whether one did."""
        request, emitted = self.request, self.emitted
        most = min(request.budget, config.max_len - len(request.prompt))
        for count, token in enumerate(tokens, start=1):
            emitted.append(token)
            if len(emitted) >= most or stopping.stops(request, emitted, config.eos):
                return tokens[:count], True
        return tokens, False


def _known(request: GenerationRequest, text: tuple[int, ...]) -> tuple[int, ...]:
    """Return a text as a prefix cache knows it: where an image begins is a token of its grid (S-CACHE-9)."""
    known = list(text)
    for image in request.images:
        known[image.start] = -(1000000 * text[image.start] + 10000 * image.frames + 100 * image.height + image.width)
    return tuple(known)
