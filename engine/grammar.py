"""Grammars: an automaton over tokens for each request that has one, and the masks of the rows that it verifies.

Built as in Willard and Louf, "Efficient Guided Generation for Large Language Models" (2023). The host walks it along
the drafts of a round, as vLLM's `grammar_bitmask` and SGLang's `traverse_tree` do; what a request keeps is the state
after the tokens that it emitted.

`R` rows of a batch, `W` verify width, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from interegular import parse_pattern
from torch import Tensor

from draftproof.engine.stages import Commit, DecodeRow, GrammarParams, PrefillRow, Proposal

EXCLUDED_LOGIT = -(1 << 40)
"""The logit of a token that a mask excludes: lower than any other, and exact in floats."""
DEAD = -1


@dataclass(frozen=True)
class TokenAutomaton:
    """`after` [states, V] is the state after a token, DEAD where it is not allowed; `excluded` marks those places.

    The first state is the state of an empty text; in the last, `free`, every token is allowed and nothing changes.
    """

    after: np.ndarray
    excluded: np.ndarray

    @property
    def free(self) -> int:
        return len(self.after) - 1

    def step(self, state: int, token: int) -> int:
        """Return the state after a token; after one that is not allowed nothing is excluded any more."""
        after = int(self.after[state, token])
        return self.free if after == DEAD else after


@lru_cache(maxsize=64)
def token_automaton(params: GrammarParams) -> TokenAutomaton:
    """Return the automaton of a pattern over tokens. Raises ValueError for a pattern that no token begins."""
    machine = parse_pattern(params.pattern).to_fsm()
    assert machine.initial is not None
    letters = sorted(set("".join(params.token_texts)))
    states = [machine.initial, *sorted(machine.states - {machine.initial})]
    number = {state: place for place, state in enumerate(states)}
    dead = len(states)
    # A state more, from which nothing leads anywhere.
    by_letter = np.full((len(letters), dead + 1), dead)
    for place, letter in enumerate(letters):
        key = machine.alphabet[letter]
        for state, onward in machine.map.items():
            by_letter[place, number[state]] = number[onward[key]] if key in onward else dead
    accepts = np.array([state in machine.finals for state in states] + [False])
    alive = _alive(by_letter, accepts)
    if not alive[0]:
        raise ValueError(f"invalid grammar {params.pattern!r}: expected one with a word that tokens spell")
    after = np.full((dead + 1, len(params.token_texts)), DEAD)
    free = dead
    for token, text in enumerate(params.token_texts):
        if token == params.end_token:
            after[:dead, token] = np.where(accepts[:dead], free, DEAD)
            continue
        at = np.arange(dead + 1)
        for letter in text:
            at = by_letter[letters.index(letter)][at]
        after[:dead, token] = np.where(alive[at], at, DEAD)[:dead]
    after[free] = free
    return TokenAutomaton(after, after == DEAD)


def _alive(by_letter: np.ndarray, accepts: np.ndarray) -> np.ndarray:
    """Return which states can still come to one that accepts."""
    alive = accepts
    while True:
        more = alive | alive[by_letter].any(axis=0)
        if (more == alive).all():
            return alive
        alive = more


class GrammarStates:
    """The automaton of each request that has one, and its state after the tokens that the request emitted."""

    def __init__(self, vocabulary: int, device: torch.device) -> None:
        self._vocabulary, self._device = vocabulary, device
        self._automata: dict[int, TokenAutomaton] = {}
        self._states: dict[int, int] = {}

    def __contains__(self, request: int) -> bool:
        """Return whether a request has a grammar."""
        return request in self._automata

    def begin(self, batch: Sequence[PrefillRow]) -> None:
        """Begin requests that were admitted, with what they have emitted before."""
        for row in batch:
            if row.request.grammar:
                self._automata[row.request.id] = token_automaton(row.request.grammar)
                self._states[row.request.id] = 0
                self._advance(row.request.id, row.emitted)

    def advance(self, commits: Sequence[Commit]) -> None:
        """Follow the tokens that requests emitted, and no draft that was rejected."""
        for commit in commits:
            self._advance(commit.request, commit.emitted)

    def release(self, request: int) -> None:
        """Forget a request."""
        self._automata.pop(request, None)
        self._states.pop(request, None)

    def allowed(self, request: int) -> tuple[int, ...]:
        """Return the tokens that may follow what a request emitted."""
        allowed = ~self._automata[request].excluded[self._states[request]]
        return tuple(np.flatnonzero(allowed).tolist())

    def prompt_masks(self, batch: Sequence[PrefillRow]) -> Tensor:
        """Return what is excluded after each text [R, V]."""
        masks = np.zeros((len(batch), self._vocabulary), bool)
        for place, row in enumerate(batch):
            if row.request.grammar:
                masks[place] = self._automata[row.request.id].excluded[self._states[row.request.id]]
        return torch.from_numpy(masks).to(self._device)

    def masks(self, batch: Sequence[DecodeRow], proposal: Proposal, width: int) -> Tensor:
        """Return what is excluded after each row of a verify [R, W, V], nothing after surplus rows."""
        masks = np.zeros((len(batch), width, self._vocabulary), bool)
        drafts = proposal.draft_tokens.tolist()
        parents = proposal.parents.tolist() if proposal.parents is not None else None
        for place, row in enumerate(batch):
            if row.request.grammar:
                count = proposal.num_drafts[place]
                above = parents[place] if parents else range(count)
                masks[place, : count + 1] = self._of_round(row.request.id, drafts[place][:count], above)
        return torch.from_numpy(masks).to(self._device)

    def _of_round(self, request: int, drafts: Sequence[int], above: Sequence[int]) -> np.ndarray:
        """Return what is excluded after the last token emitted, and after each draft behind the row above it."""
        automaton, states = self._automata[request], [self._states[request]]
        for token, parent in zip(drafts, above, strict=False):
            states.append(automaton.step(states[parent], token))
        return automaton.excluded[states]

    def _advance(self, request: int, tokens: Sequence[int]) -> None:
        if request in self._automata:
            for token in tokens:
                self._states[request] = self._automata[request].step(self._states[request], token)


def masked(logits: Tensor, excluded: Tensor, logit_units: int) -> Tensor:
    """Return logits [T, V], those that are excluded below all others; a probe's, of one unit each, as whole numbers."""
    return torch.where(excluded, EXCLUDED_LOGIT, logits.to(torch.int64) if logit_units == 1 else logits)
