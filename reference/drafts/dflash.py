"""DFlash by definition (S-DFLASH-1 .. S-DFLASH-4): one pass fills in a block of masked tokens.

For each committed position p < n the draft has a context entry in every layer, made of f_p: the outputs of chosen
layers of the target, side by side. The block of a round of K drafts has the ids t_n, mask, .., mask at positions
n .. n+K; each row sees all context entries and all rows of the block, and row i >= 1 proposes d_i.
Source: sgl-project/sglang#25029.
"""

from __future__ import annotations

import numpy as np

from draftproof.properties.values.drafts import DFlash
from draftproof.properties.values.scenario import ProbeModel
from draftproof.properties.weights.probe import Weights
from draftproof.reference.drafts.base import Pick, ReferenceProposal, Said, said_choice, vector
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.probe.block import ReferenceProbeBlock
from draftproof.reference.protocols import ReferenceBlock


def probe(spec: DFlash, target: ProbeModel, memo: Memo, weights: Weights | None = None) -> ReferenceDFlash:
    """Return the draft of a probe scenario."""
    return ReferenceDFlash(ReferenceProbeBlock(spec, target, memo, weights))


class ReferenceDFlash:
    """A draft that runs one block a round."""

    pick = Pick()

    def __init__(self, block: ReferenceBlock) -> None:
        self._block = block

    def config(self) -> tuple[int, int]:
        """See `ReferenceDraft`."""
        return self._block.width, self._block.layers

    def propose(self, tokens: tuple[int, ...], whole: Pass, count: int) -> ReferenceProposal:
        """See `ReferenceDraft`."""
        if not count:
            return ReferenceProposal((), ())
        n, ids = len(tokens) - 1, (tokens[-1], *(self._block.mask,) * count)
        logits = self._block.forward(ids, self._features(whole)).logits
        picked = [self.pick(one, n + row) for row, one in enumerate(logits)]
        choices = [one.choice for one in picked]
        said: list[Said] = []
        for row, (token, choice) in enumerate(zip(ids, choices, strict=True)):
            said.append(Said("draft.block.ids", token, row=row))
            said.append(Said("draft.block.positions", n + row, row=row))
            said.append(Said("draft.block.visible", n + count, row=row))
            said.append(said_choice("draft.block.proposal", choice, row=row))
        drawn_by = tuple(one.weights for one in picked[1:])
        return ReferenceProposal(tuple(choice.token for choice in choices[1:]), tuple(said), weights=drawn_by)

    def extend(self, tokens: tuple[int, ...], whole: Pass, first: int) -> tuple[Said, ...]:
        """See `ReferenceDraft`."""
        features = self._features(whole)[first:]
        layers, said = self._block.entries(features, first), list[Said]()
        for position, f in enumerate(features, start=first):
            said.append(Said("extend.positions", position, layer=0, row=position))
            said.append(Said("extend.hidden_in", vector(f), layer=0, row=position))
            for layer, entries in enumerate(layers):
                said.append(Said("extend.kv", vector(entries[position - first]), layer=layer, row=position))
        return tuple(said)

    def carried_states(self, tokens: tuple[int, ...], whole: Pass) -> tuple[tuple[int, np.ndarray], ...]:
        """See `ReferenceDraft`: none."""
        return ()

    def _features(self, whole: Pass) -> np.ndarray:
        """f [T, F] of every position of a target's pass."""
        return np.concatenate([whole.layers[layer] for layer in self._block.features], axis=1)
