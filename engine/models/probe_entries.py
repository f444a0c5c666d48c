"""Drafts of a probe made of entries (token, hidden): an EAGLE head, and chained multi-token prediction.

`T` packed tokens, `D` lanes of the target, `Dd` lanes of the draft, `V` vocabulary, `V'` what the draft can propose of
it; all int64. Definitions: docs/semantics/probes.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.engine.models.base import AttentionMetadata, Cache
from draftproof.engine.models.probe import ProbeLayer, ProbeParts
from draftproof.engine.models.probe_ops import linear, mix, mixed
from draftproof.engine.models.probe_parallel import Embedding
from draftproof.engine.models.probe_unembed import Unembedding


class ProbeEntries:
    """Layer `index` of a draft; its entry at position p has the token of p + 1 + index.

    Weights are named as `weights.probe.draft_weights` does: fc [Dd, 2D] over (embedding, hidden), layers.j.*,
    out [D, Dd], each with an `ending` or none.
    """

    def __init__(self, parts: ProbeParts, index: int, ending: str = "") -> None:
        weights, spec, self._ahead = parts.weights, parts.own, index + 1
        self._embed = Embedding(weights["own.embed"] if spec.own_embedding else weights["embed"], parts.group)
        # Lane 0 of the target's embedding, which the carry is made of, is the last one of the draft's own.
        self._carried = -1 if spec.own_embedding else 0
        self._masks_first, self._before_norm = spec.masks_first, spec.handed == "before_norm"
        self._carry, self._fc, self._out = (weights[n] for n in ("carry.position", f"fc{ending}", f"out{ending}"))
        self._layer = ProbeLayer(weights, index, index, parts.shape, parts.group)
        self.target_ids = weights.get("own.ids")
        if spec.own_head:
            unembed = weights[f"own.unembed.{index}"]
        else:
            unembed = weights["unembed"] if self.target_ids is None else weights["unembed"][self.target_ids]
        vocab = weights["unembed"].shape[0]
        self.logits = Unembedding(unembed, parts.logit_bits, 256, self.target_ids, vocab, parts.group)

    def forward(
        self, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata, cache: Cache
    ) -> tuple[Tensor, Tensor]:
        """ids [T], hidden_states [T, D] -> (states of the logits, states handed on), both [T, D]."""
        embedded = self._embed(ids)
        if self._masks_first:
            embedded.masked_fill_((metadata.positions == 0).unsqueeze(1), 0)
        added = torch.addcmul(embedded[:, self._carried], metadata.positions + self._ahead, self._carry)
        x = mix(linear(torch.cat([embedded, hidden_states], dim=1), self._fc))
        x, _ = self._layer.forward(x, metadata, cache)
        out = linear(x, self._out)
        states = mixed(out) if self._before_norm else mix(out)
        torch.add(hidden_states[:, 0], mix(added), out=states[:, 0])
        if self._before_norm:
            out[:, 0].copy_(states[:, 0])
        return states, out

    def tensors(self) -> tuple[Tensor, ...]:
        own = () if self.target_ids is None else (self.target_ids,)
        layer = (self._fc, self._out, *self._layer.tensors())
        return (*self._embed.tensors(), self._carry, *layer, *self.logits.tensors(), *own)


class ProbeHead(ProbeEntries):
    """A `Head`: the only layer of its draft."""

    def __init__(self, parts: ProbeParts) -> None:
        super().__init__(parts, 0)
        self.cache_shape, self.takes = parts.cache_shape, parts.own.takes

    weights = ProbeEntries.tensors


class ProbeChain:
    """A `Chain`."""

    def __init__(self, parts: ProbeParts) -> None:
        self.chain, self.takes = parts.own.chain, parts.own.takes
        self._layers = tuple(ProbeEntries(parts, layer, f".{layer}") for layer in range(parts.layers))
        self.cache_shape, self.target_ids = parts.cache_shape, self._layers[0].target_ids

    def forward(
        self, layer: int, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata, cache: Cache
    ) -> tuple[Tensor, Tensor]:
        return self._layers[layer].forward(ids, hidden_states, metadata, cache)

    def logits(self, hidden_states: Tensor) -> Tensor:
        return self.layer_logits(0, hidden_states)

    def layer_logits(self, layer: int, hidden_states: Tensor) -> Tensor:
        return self._layers[layer].logits(hidden_states)

    def weights(self) -> tuple[Tensor, ...]:
        return tuple({id(tensor): tensor for layer in self._layers for tensor in layer.tensors()}.values())
