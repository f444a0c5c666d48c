"""The EAGLE-3 head of a probe (docs/semantics/probes.md).

`T` packed tokens, `D` lanes of the target, `Df` lanes of the features, `Dd` lanes of the head, `De` lanes of its
embedding, `V` vocabulary, `Vd` vocabulary of the head; all int64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.engine.models.base import AttentionMetadata, Cache
from draftproof.engine.models.probe import ProbeLayer, ProbeParts
from draftproof.engine.models.probe_ops import linear, mix, mixed
from draftproof.engine.models.probe_parallel import Embedding
from draftproof.engine.models.probe_unembed import Unembedding

CARRY, TOKEN = 0, 1
"""Lanes of a state that are no hash: the carry up to the next token, and lane 0 of that token's embedding."""


class ProbeEagle3:
    """An `Eagle3Head`; weights as `properties.weights.probe.draft_weights` names them, as int64 tensors.

    embed [V, De], fc [Dd, Df], layers.0.* over (embedding, state), unembed [Vd, Dd], d2t [Vd] if Vd < V.
    """

    takes = "layers"

    def __init__(self, parts: ProbeParts) -> None:
        weights, shape, logit_bits = parts.weights, parts.shape, parts.logit_bits
        self.features, d2t = tuple(parts.own.features), weights.get("d2t")
        self.target_ids = None if d2t is None else torch.arange(len(d2t), device=d2t.device) + d2t
        self.fc, self.carry = weights["fc"], weights["carry.position"]
        self.embed = Embedding(weights["embed"], parts.group)
        self.width, self.cache_shape = self.fc.shape[0], parts.cache_shape
        self._layer = ProbeLayer(weights, 0, 0, shape, parts.group)
        vocab = self.embed.vocab
        self._unembed = Unembedding(weights["unembed"], logit_bits, 256, self.target_ids, vocab, parts.group)

    def join(self, features: Tensor) -> Tensor:
        """[T, Df] -> [T, Dd]."""
        return linear(features, self.fc)

    def forward(
        self, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata, cache: Cache
    ) -> tuple[Tensor, Tensor]:
        """ids [T], states [T, Dd] -> (states for logits, states handed on), both [T, Dd]."""
        embedded, normed = self.embed(ids), mixed(hidden_states)
        normed[:, TOKEN].copy_(hidden_states[:, TOKEN])
        attended = self._layer.attend(torch.cat([mixed(embedded), normed], dim=1), metadata, cache)
        handed, first = self._layer.output(hidden_states, attended)
        added = mix(embedded[:, 0] + (metadata.positions + 1) * self.carry)
        torch.add(first, added, out=handed[:, CARRY])
        handed[:, TOKEN].copy_(embedded[:, 0])
        states = mixed(handed)
        states[:, CARRY].copy_(handed[:, CARRY])
        return states, handed

    def logits(self, hidden_states: Tensor) -> Tensor:
        """[T, Dd] -> [T, Vd]."""
        return self._unembed(hidden_states)

    def weights(self) -> tuple[Tensor, ...]:
        own = () if self.target_ids is None else (self.target_ids,)
        return (*own, *self.embed.tensors(), self.fc, self.carry, *self._unembed.tensors(), *self._layer.tensors())
