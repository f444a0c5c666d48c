"""Chained multi-token prediction of a probe, a layer a proposal (docs/semantics.md, "Probe models").

`T` packed tokens, `D` lanes of the target, `Dd` lanes of the draft, `L` layers, `V` vocabulary; all int64.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from draftproof.engine.models.base import AttentionMetadata, Cache
from draftproof.engine.models.probe import ProbeLayer, ProbeShape
from draftproof.engine.models.probe_ops import Unembedding, linear, mix, mixed

HANDED = ("after_norm", "before_norm")


class ProbeChain:
    """A `Chain`; weights as `properties.values.probe.draft_weights` names them, as int64 tensors.

    fc.j [Dd, 2D] over (embedding, hidden), layers.j.*, out.j [D, Dd]. A layer hands on what its logits are of, or with
    `handed` "before_norm" the same before its mix, but for the carry. Raises ValueError for anything else.
    """

    def __init__(
        self, weights: Mapping[str, Tensor], shape: ProbeShape, logit_bits: int, *, chain: bool, handed: str
    ) -> None:
        if handed not in HANDED:
            raise ValueError(f"invalid handed {handed!r}: expected {' or '.join(HANDED)}")
        count = sum(name.startswith("fc.") for name in weights)
        self.chain, self._before = chain, handed == "before_norm"
        self.cache_shape = shape.cache(count)
        self._embed, self._carry = weights["embed"], weights["carry.position"]
        self._fc = tuple(weights[f"fc.{layer}"] for layer in range(count))
        self._layers = tuple(ProbeLayer(weights, layer, layer, shape) for layer in range(count))
        self._out = tuple(weights[f"out.{layer}"] for layer in range(count))
        # What a token adds to the carry, but for its entry's position: in layer j it is j + 1 further on.
        self._added = tuple(self._embed[:, 0] + self._carry * (layer + 1) for layer in range(count))
        self._unembed = Unembedding(weights["unembed"], logit_bits, 256)

    def forward(
        self, layer: int, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata, cache: Cache
    ) -> tuple[Tensor, Tensor]:
        """ids [T], hidden_states [T, D] -> (states of the logits, states handed on), both [T, D]."""
        embedded = self._embed.index_select(0, ids)
        x = mix(linear(torch.cat([embedded, hidden_states], dim=1), self._fc[layer]))
        x, _ = self._layers[layer].forward(x, metadata, cache)
        out = linear(x, self._out[layer])
        states = mixed(out) if self._before else mix(out)
        new = mix(torch.addcmul(self._added[layer].index_select(0, ids), metadata.positions, self._carry))
        torch.add(hidden_states[:, 0], new, out=states[:, 0])
        if self._before:
            out[:, 0].copy_(states[:, 0])
        return states, out

    def logits(self, hidden_states: Tensor) -> Tensor:
        return self._unembed(hidden_states)

    def weights(self) -> tuple[Tensor, ...]:
        layers = tuple(tensor for layer in self._layers for tensor in layer.tensors())
        own = (*self._fc, *self._out, *self._added, *layers)
        return (self._embed, self._carry, *self._unembed.tensors(), *own)
