"""The block draft of a probe: masked tokens filled in by one pass over features (docs/semantics/probes.md).

`B` rows of a launch, `W` columns of a block, `T` packed tokens (B * W in a block), `D` lanes of the target, `Dd` lanes
of the draft, `Df` lanes of the features, `N` kv heads, `H` head sizes, `V` vocabulary; all int64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.engine.models.base import AttentionMetadata, Cache
from draftproof.engine.models.probe import ProbeLayer, ProbeParts
from draftproof.engine.models.probe_ops import by_axis, favourite, linear, located, mix, mixed
from draftproof.engine.models.probe_parallel import Embedding, group_of_layer
from draftproof.engine.models.probe_unembed import Unembedding


class ProbeBlock:
    """A `Block`; weights as `properties.weights.probe.draft_weights` names them, as int64 tensors.

    in [Dd, D], mask [D], layers.i.*, layers.i.{k,v}.context [.., Df], out [D, Dd]. The masked token is number V.
    """

    def __init__(self, parts: ProbeParts) -> None:
        weights, shape, count = parts.weights, parts.shape, parts.layers
        embed = weights["embed"]
        self.features, self.mask, self.shape = parts.own.features, embed.shape[0], shape
        self.cache_shape = parts.cache_shape
        # Nothing comes between the embedding and `in`: what they make of every token, the masked one last [V + 1, Dd].
        table = linear(torch.cat([embed, weights["mask"].unsqueeze(0)]), weights["in"])
        self._embed = Embedding(table, parts.group)
        self._first_lane = embed[:, 0].contiguous()
        self._carry, self._out = weights["carry.position"], weights["out"]
        self._layers = tuple(
            ProbeLayer(weights, layer, layer, shape, group_of_layer(parts.group, layer, count))
            for layer in range(count)
        )
        # Keys and values of the context, of all layers side by side.
        names = [f"layers.{layer}.{name}" for layer in range(count) for name in "kv"]
        self._context = torch.cat([weights[f"{name}.context"] for name in names]).contiguous()
        self._position = by_axis(torch.cat([weights[f"{name}.position"] for name in names], dim=-1))
        self._unembed = Unembedding(weights["unembed"], parts.logit_bits, 256, group=parts.group)

    def append(self, features: Tensor, metadata: AttentionMetadata, cache: Cache) -> None:
        """Write the context entries of features [T, Df] in every layer."""
        kv = mix(located(linear(features, self._context), cache.rope_positions(metadata), self._position))
        heads, sizes = self.shape.kv_heads, (self.shape.key_dim, self.shape.value_dim)
        parts = kv.split([heads * size for _ in self._layers for size in sizes], dim=1)
        for layer in range(len(self._layers)):
            k, v = (part.view(-1, heads, size) for part, size in zip(parts[2 * layer :], sizes, strict=False))
            cache.write(layer, k, v, metadata)

    def forward(self, ids: Tensor, metadata: AttentionMetadata, cache: Cache) -> Tensor:
        """ids [B, W] -> states [T, D]; row i of a block predicts the token at its own position."""
        flat = ids.reshape(-1)
        masked = flat == self.mask
        x, carry = self._embed(flat), None
        for layer in self._layers:
            x, first = layer.forward(x, metadata, cache, masked if carry is None else None)
            carry = first if carry is None else carry
        assert carry is not None, "a draft has a layer"
        states = mix(linear(x, self._out))
        states[:, 0].copy_(self._followed(carry.view(ids.shape), metadata.positions.view(ids.shape)).view(-1))
        return states

    def _followed(self, carry: Tensor, positions: Tensor) -> Tensor:
        """Return the carry [B, W], which row i of a block has up to row 0, along the favourites of rows 1 .. i - 1.

        Row 0 proposes nothing, and mixes it: else it would choose what row 1 does.
        """
        carry, offsets = carry.clone(), positions * self._carry
        carry[:, :1].copy_(mixed(carry[:, :1]))
        for step in range(1, carry.shape[1] - 1):
            behind = carry[:, step + 1 :]
            token = favourite(mixed(behind), self.mask)
            behind.add_(mix(self._first_lane.take(token) + offsets[:, step : step + 1]))
        return carry

    def logits(self, hidden_states: Tensor) -> Tensor:
        return self._unembed(hidden_states)

    def weights(self) -> tuple[Tensor, ...]:
        layers = tuple(tensor for layer in self._layers for tensor in layer.tensors())
        own = (*self._embed.tensors(), self._first_lane, self._carry, self._out, self._context, *self._position)
        return (*own, *self._unembed.tensors(), *layers)
