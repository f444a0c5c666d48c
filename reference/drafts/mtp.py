"""Chained multi-token prediction by definition (S-MTP-1 .. S-MTP-5): N layers, one proposal each.

After a commit the tokens t_0 .. t_T are known, t_T is pending, and every layer has the entries 0 .. T-1. Entry i of
layer j is at position i and consumes the token i + 1 + j, which beyond T is the proposal d_{i+1+j-T}, and h_i; in a
chain layer j > 0 consumes what layer j-1 handed on at entry i instead. Layer j's choice at entry T-1 is d_{j+1}.
An entry made of a proposal holds until the next commit, when all that such an entry may have been in is made anew:
the last N-1 entries before it.
Source: sgl-project/sglang#22041; DeepSeek-V3 (2024), section 2.2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from draftproof.properties.values.drafts import Mtp
from draftproof.properties.values.scenario import ProbeModel
from draftproof.properties.weights.probe import Weights
from draftproof.reference.choose import Choice, choose
from draftproof.reference.drafts.base import ReferenceProposal, Said, said_choice, vector
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.probe.drafts import ReferenceProbeChain
from draftproof.reference.protocols import ReferenceChain, taken


def probe(spec: Mtp, target: ProbeModel, memo: Memo, weights: Weights | None = None) -> ReferenceMtp:
    """Return the draft of a probe scenario."""
    return ReferenceMtp(ReferenceProbeChain(spec, target, memo, weights))


class _Layer(NamedTuple):
    """One layer run over all entries.

    It has the tokens [T] and hidden inputs [T, L] that the layer consumed, and its choice at the last entry.
    """

    ids: tuple[int, ...]
    hidden: np.ndarray
    entries: Pass
    choice: Choice


class ReferenceMtp:
    """A draft that runs each layer of a chain once."""

    def __init__(self, chain: ReferenceChain) -> None:
        self._chain = chain

    def config(self) -> tuple[int, int]:
        """See `ReferenceDraft`."""
        return self._chain.width, self._chain.layers

    def propose(self, tokens: tuple[int, ...], whole: Pass, count: int) -> ReferenceProposal:
        """Return the proposals of the extend before, which has reported them already; see `ReferenceDraft`."""
        return ReferenceProposal(tuple(layer.choice.token for layer in self._layers(tokens, whole, count)), ())

    def extend(self, tokens: tuple[int, ...], whole: Pass, first: int) -> tuple[Said, ...]:
        """See `ReferenceDraft`."""
        said: list[Said] = []
        window = range(max(0, first - (self._chain.layers - 1)), len(whole.hidden))
        for index, layer in enumerate(self._layers(tokens, whole, self._chain.layers)):
            for position in window:
                said.append(Said("extend.ids", layer.ids[position], layer=index, row=position))
                said.append(Said("extend.positions", position, layer=index, row=position))
                said.append(Said("extend.hidden_in", vector(layer.hidden[position]), layer=index, row=position))
                said.append(Said("extend.kv", vector(layer.entries.kv[0][position]), layer=index, row=position))
            said.append(said_choice("extend.proposal", layer.choice, layer=index))
        return tuple(said)

    def carried_states(self, tokens: tuple[int, ...], whole: Pass) -> tuple[tuple[int, np.ndarray], ...]:
        """See `ReferenceDraft`: h of the last N - 1 entries, which are computed again."""
        given = taken(self._chain, whole)
        first = max(0, len(given) - (self._chain.layers - 1))
        return tuple((position, given[position]) for position in range(first, len(given)))

    def _layers(self, tokens: tuple[int, ...], whole: Pass, count: int) -> list[_Layer]:
        """Return the first `count` layers, run over entries 0 .. T-1 of tokens t_0 .. t_T."""
        ids, hidden, done = tokens[1:], taken(self._chain, whole), list[_Layer]()
        for index in range(count):
            entries = self._chain.forward(index, ids, hidden)
            done.append(_Layer(ids, hidden, entries, choose(entries.logits[-1], self._chain.ids)))
            ids = (*ids[1:], done[-1].choice.token)
            hidden = entries.hidden if self._chain.chain else hidden
        return done
