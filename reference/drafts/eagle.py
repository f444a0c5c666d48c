"""EAGLE by definition (S-EAGLE-1 .. S-EAGLE-6): entry i of the head is at position i and consumes (t_{i+1}, h_i).

h_i is the target's hidden state at position i, n the number of committed tokens, t_n the pending one. A round of K
drafts takes K - 1 forwards of the head: forward k adds an entry of d_k and of the state that the one before handed on.
Source: Li et al., EAGLE (2024).
"""

from __future__ import annotations

import numpy as np

from draftproof.properties.values.drafts import Eagle
from draftproof.properties.values.scenario import ProbeModel
from draftproof.properties.weights.probe import Weights
from draftproof.reference.choose import choose
from draftproof.reference.drafts.base import Pick, ReferenceProposal, Said, said_choice, vector
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.probe.drafts import ProbeEagleHead
from draftproof.reference.protocols import ReferenceHead, taken


def probe(spec: Eagle, target: ProbeModel, memo: Memo, weights: Weights | None = None) -> ReferenceEagle:
    """Return the draft of a probe scenario."""
    return ReferenceEagle(ProbeEagleHead(spec, target, memo, weights))


class ReferenceEagle:
    """A draft that runs one head again and again."""

    pick = Pick()

    def __init__(self, head: ReferenceHead) -> None:
        self.head = head

    def config(self) -> tuple[int, int]:
        """See `ReferenceDraft`."""
        return self.head.width, 1

    def propose(self, tokens: tuple[int, ...], whole: Pass, count: int) -> ReferenceProposal:
        """See `ReferenceDraft`."""
        if not count:
            return ReferenceProposal((), ())
        ids, hidden, said = tokens[1:], self._states(self._given(whole)), list[Said]()
        entries = self.head.forward(ids, hidden)
        picked, sure = [self.pick(entries.logits[-1], len(tokens), self.head.ids)], len(ids) <= entries.unsure
        for k in range(1, count):
            ids, stand_in = (*ids, picked[-1].choice.token), entries.hidden[-1]
            hidden = np.concatenate((hidden, stand_in[None]))
            entries = self.head.forward(ids, hidden)
            picked.append(self.pick(entries.logits[-1], len(tokens) + k, self.head.ids))
            said.append(Said("draft.step.ids", ids[-1], step=k, sure=sure))
            said.append(Said("draft.step.positions", len(ids) - 1, step=k))
            said.append(Said("draft.step.hidden_in", vector(stand_in), step=k, sure=sure))
            sure = len(ids) <= entries.unsure
            said.append(said_choice("draft.step.proposal", picked[-1].choice, step=k, sure=sure))
        drafts, drawn_by = tuple(one.choice.token for one in picked), tuple(one.weights for one in picked)
        return ReferenceProposal(drafts, tuple(said), weights=drawn_by)

    def extend(self, tokens: tuple[int, ...], whole: Pass, first: int) -> tuple[Said, ...]:
        """See `ReferenceDraft`. All true entries are 0 .. n-1, made of t_0 .. t_n and h [n, L]."""
        given, said = self._given(whole), list[Said]()
        entries = self.head.forward(tokens[1:], self._states(given))
        for position in range(first, len(given)):
            said.append(Said("extend.ids", tokens[position + 1], layer=0, row=position))
            said.append(Said("extend.positions", position, layer=0, row=position))
            said.append(Said("extend.hidden_in", vector(given[position]), layer=0, row=position))
            said.append(Said("extend.kv", vector(entries.kv[0][position]), layer=0, row=position))
        choice = choose(entries.logits[-1], self.head.ids)
        return (*said, said_choice("extend.proposal", choice, layer=0))

    def carried_states(self, tokens: tuple[int, ...], whole: Pass) -> tuple[tuple[int, np.ndarray], ...]:
        """See `ReferenceDraft`: g_{n-1}, the stand-in of the first draft step."""
        entries = self.head.forward(tokens[1:], self._states(self._given(whole)))
        return ((len(whole.hidden) - 1, entries.hidden[-1]),)

    def _given(self, whole: Pass) -> np.ndarray:
        """Return the target's hidden state of each position that the draft reads, [n, D]."""
        return taken(self.head, whole)

    def _states(self, given: np.ndarray) -> np.ndarray:
        """Return the hidden states that the draft's entries consume."""
        return given
