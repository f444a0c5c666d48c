"""What a draft is to the reference: a function of tokens and the target's pass over them, with no memory of its own.

Tokens t_0 .. t_n with t_n pending; h the target's hidden states. A module of this package is named for its algorithm
and has `probe(spec, target, memo, weights)`, which makes the draft of a probe from the specifications of both, with its
own weights or given ones. What only the subject can know (slots) is not reported.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import NamedTuple, Protocol

import numpy as np

from draftproof.properties.values.observed import Datum
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Request, Scenario
from draftproof.reference.choose import Choice, NearTokens, choose
from draftproof.reference.memo import Pass
from draftproof.reference.mrope import places_of
from draftproof.reference.protocols import ReferenceTarget
from draftproof.reference.sampling import draft_coins, filtered, grid_weights, sample


class Said(NamedTuple):
    """An observation that lacks its request and round; `near` as in Choice, which only a real model's trace holds.

    It is not `sure` where a subject may right so say something else (S-KV-6).
    """

    channel: str
    value: Datum
    step: int = -1
    layer: int = -1
    row: int = -1
    near: Callable[[], NearTokens] = tuple
    sure: bool = True


def said_choice(
    channel: str, choice: Choice, *, step: int = -1, layer: int = -1, row: int = -1, sure: bool = True
) -> Said:
    """Return a choice as an observation, with the tokens that come near it."""
    return Said(channel, (choice.token, choice.margin), step, layer, row, choice.near, sure)


class ReferenceProposal(NamedTuple):
    """The tokens d_1 .. d_K that a draft itself proposes, and what there is to say of how it came by them.

    `parents` are the rows that the tokens of a tree follow (S-TREE-1), `weights` those that each token was drawn by.
    """

    tokens: tuple[int, ...]
    said: tuple[Said, ...]
    parents: tuple[int, ...] = ()
    weights: tuple[tuple[int, ...], ...] = ()


class Picked(NamedTuple):
    """A draft's token as a choice, and the weights of the whole vocabulary that it was drawn by; none if it was not."""

    choice: Choice
    weights: tuple[int, ...] = ()


class Pick:
    """How a draft picks a token: the best of a row of logits [V], or one drawn for its position (S-SAMPLE-9)."""

    def __init__(self, sampling: Sampling | None = None, vocab: int = 0) -> None:
        self._sampling, self._vocab = sampling, vocab

    def __call__(self, logits: np.ndarray, position: int, ids: tuple[int, ...] | None = None) -> Picked:
        """`ids` are the tokens that the places of the logits stand for, if they are not these."""
        best = choose(logits, ids)
        if self._sampling is None:
            return Picked(best)
        tokens, weights = ids or range(len(logits)), [0] * self._vocab
        for token, weight in zip(tokens, grid_weights(logits, self._sampling), strict=True):
            # Each token has one place, but where a table of ids is perturbed (S-VAC-1).
            weights[token] += weight
        weights = filtered(weights, self._sampling)
        token = sample(weights, (), draft_coins(self._sampling.seed, position))
        return Picked(Choice(token, best.margin), tuple(weights))


class ReferenceDraft(Protocol):
    """A draft algorithm on a model of its own, if it has one."""

    def config(self) -> tuple[int, int]:
        """Width of the hidden states that it is fed with in every round, and layers of its own pool of entries."""

    def propose(self, tokens: tuple[int, ...], whole: Pass, count: int) -> ReferenceProposal:
        """Up to `count` drafts after t_0 .. t_n; `whole` is the target's pass over t_0 .. t_{n-1}."""

    def extend(self, tokens: tuple[int, ...], whole: Pass, first: int) -> tuple[Said, ...]:
        """Return what the draft extend reports for t_0 .. t_n and the target's pass over t_0 .. t_{n-1}.

        Tokens before `first` had been committed before this round (`first` is 0 after the prefill).
        """

    def carried_states(self, tokens: tuple[int, ...], whole: Pass) -> tuple[tuple[int, np.ndarray], ...]:
        """Return the hidden states of earlier entries that the next round reads, each with its position."""


def propose(draft: ReferenceDraft, target: ReferenceTarget, tokens: tuple[int, ...], count: int) -> ReferenceProposal:
    """Return what a draft proposes after t_0 .. t_n; for a prompt of one token the pass is over that token."""
    return draft.propose(tokens, target.forward(tokens[:-1] or tokens, len(tokens)), count)


def draft_for_request(draft: ReferenceDraft, scenario: Scenario, request: Request) -> ReferenceDraft:
    """Return the draft of a request: the given one, or a copy that draws its tokens or runs over its images."""
    draft = _placed(draft, request)
    if request.sampling is None or request.sampling.draft == "greedy":
        return draft
    drawn = copy(draft)
    drawn.pick = Pick(request.sampling, scenario.model.vocab)  # type: ignore[attr-defined]  # `DraftKind.draws`
    return drawn


def _placed(draft: ReferenceDraft, request: Request) -> ReferenceDraft:
    """Return the draft with a model whose entries have the RoPE positions of the request's tokens."""
    if not request.images:
        return draft
    made = copy(draft)
    for name, part in vars(draft).items():
        if hasattr(part, "placed"):
            setattr(made, name, part.placed(places_of(request)))
    return made


def vector(row: np.ndarray) -> bytes | np.ndarray:
    """Return a vector as traces hold it: little-endian bytes of a probe's integers, a read-only array of floats."""
    if row.dtype == np.uint64:
        return row.astype("<u8", copy=False).tobytes()
    row = row.astype(np.float64)
    row.setflags(write=False)
    return row
