"""A standalone draft by definition (S-STANDALONE-1 .. S-STANDALONE-3): entry i is t_i at position i.

Step k = 1 .. K of a round runs t_n (k = 1) or d_{k-1} at position n + k - 1 and gives d_k. After the verify the tokens
t_n .. t_{n+a} that it accepted are run again, which leaves an entry at every position below the new context length and
none that was made of a rejected token.
Source: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2023).
"""

from __future__ import annotations

import numpy as np

from draftproof.properties.values.drafts import Standalone
from draftproof.properties.values.scenario import ProbeModel
from draftproof.properties.weights.probe import Weights
from draftproof.reference.drafts.base import Pick, ReferenceProposal, Said, said_choice, vector
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.probe.drafts import standalone
from draftproof.reference.protocols import ReferenceTarget


def probe(spec: Standalone, target: ProbeModel, memo: Memo, weights: Weights | None = None) -> ReferenceStandalone:
    """Return the draft of a probe scenario."""
    return ReferenceStandalone(standalone(spec, target, memo, weights))


class ReferenceStandalone:
    """A draft that decodes with a smaller model."""

    pick = Pick()

    def __init__(self, model: ReferenceTarget) -> None:
        self._model = model

    def config(self) -> tuple[int, int]:
        """See `ReferenceDraft`."""
        return 0, len(self._model.layer_types) - self._model.layer_types.count("linear_attention")

    def propose(self, tokens: tuple[int, ...], whole: Pass, count: int) -> ReferenceProposal:
        """See `ReferenceDraft`."""
        ids, said, weights, sure = tokens, list[Said](), tuple[tuple[int, ...], ...](), True
        for k in range(1, count + 1):
            entries = self._model.forward(ids)
            choice, drawn_by = self.pick(entries.logits[-1], len(ids))
            said.append(Said("draft.step.ids", ids[-1], step=k, sure=sure))
            said.append(Said("draft.step.positions", len(ids) - 1, step=k))
            sure = len(ids) <= entries.unsure
            said.append(said_choice("draft.step.proposal", choice, step=k, sure=sure))
            ids, weights = (*ids, choice.token), (*weights, drawn_by)
        return ReferenceProposal(ids[len(tokens) :], tuple(said), weights=weights)

    def extend(self, tokens: tuple[int, ...], whole: Pass, first: int) -> tuple[Said, ...]:
        """See `ReferenceDraft`."""
        said, layers = list[Said](), self._model.forward(tokens[:-1]).kv
        for position in range(first, len(tokens) - 1):
            said.append(Said("extend.ids", tokens[position], layer=0, row=position))
            said.append(Said("extend.positions", position, layer=0, row=position))
            for layer, entries in enumerate(layers):
                said.append(Said("extend.kv", vector(entries[position]), layer=layer, row=position))
        return tuple(said)

    def carried_states(self, tokens: tuple[int, ...], whole: Pass) -> tuple[tuple[int, np.ndarray], ...]:
        """See `ReferenceDraft`: none."""
        return ()
