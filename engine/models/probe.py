"""Probe target in the ring of integers modulo 2^64 (docs/semantics/probes.md).

Drafts of entries are in probe_entries.py, an EAGLE-3 head in probe_eagle3.py, a block draft in probe_dflash.py. `T`
packed tokens, `D` lanes, `N` heads, `H` head sizes, `V` vocabulary; all int64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from draftproof.engine.models.base import BEFORE_NORM, AttentionMetadata, Cache, CacheShape, LayerOutputs, LinearSizes
from draftproof.engine.models.config_fields import (
    FULL_ATTENTION,
    LINEAR_ATTENTION,
    draft_fields,
    layer_types,
    target_fields,
    windows,
)
from draftproof.engine.models.probe_linear import ProbeLinear
from draftproof.engine.models.probe_ops import by_axis, linear, located, mix, mixed
from draftproof.engine.models.probe_parallel import Embedding, OutputProjection, group_of_layer, mixing
from draftproof.engine.models.probe_unembed import Unembedding
from draftproof.engine.ranks import SOLO, Solo
from draftproof.engine.tensor_ranks import TensorGroup


@dataclass(frozen=True)
class ProbeShape:
    """Sizes of one side (target or head), and the bits of its entries' numbers."""

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    kv_bits: int = 64

    def cache(self, windows: tuple[int, ...]) -> CacheShape:
        """Return the shape of the entries of layers with these windows."""
        sizes = self.kv_heads, self.key_dim, self.value_dim
        codes = {8: torch.int8, 16: torch.int16}.get(self.kv_bits)
        return CacheShape(len(windows), *sizes, torch.int64, windows if any(windows) else (), codes)


NO_HEADS = ProbeShape(0, 0, 0, 0)


@dataclass(frozen=True)
class ProbeParts:
    """What a probe's draft is built from. `shape` has its heads, if it has any.

    `config` is the one that its target was built from; the draft's own fields are in it as "draft".
    """

    weights: Mapping[str, Tensor]
    shape: ProbeShape
    config: Any
    logit_bits: int
    group: Solo = SOLO

    @property
    def own(self) -> Any:
        """The draft's own fields, by the names that its specification has (`properties.values.drafts`)."""
        return SimpleNamespace(**draft_fields(self.config)["draft"])

    @property
    def layers(self) -> int:
        """How many layers the draft has, all of attention."""
        return len(self.windows)

    @property
    def windows(self) -> tuple[int, ...]:
        """The window of each of them, 0 for none."""
        return windows(draft_fields(self.config))

    @property
    def cache_shape(self) -> CacheShape:
        """The shape of the draft's entries."""
        return self.shape.cache(self.windows)


class ProbeLayer:
    """Attention over mixed keys and queries with positions in them, then a mixing layer; residual throughout."""

    def __init__(
        self, weights: Mapping[str, Tensor], index: int, order: int, shape: ProbeShape, group: Solo = SOLO
    ) -> None:
        """Layer `index` of the model, number `order` among those that attend; `shape` and weights are this rank's."""
        prefix = f"layers.{index}"
        self._order, self.shape = order, shape
        self._has_first_head = group.rank == 0 or not isinstance(group, TensorGroup)
        self.qkv = torch.cat([weights[f"{prefix}.{name}.weight"] for name in "qkv"]).contiguous()
        self.position = by_axis(torch.cat([weights[f"{prefix}.{name}.position"] for name in "qkv"], dim=-1))
        self.gate = weights[f"{prefix}.q.gate"]
        self.o = OutputProjection(weights[f"{prefix}.o.weight"], group)
        self.mlp = mixing(weights[f"{prefix}.mlp.weight"], group)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.qkv, *self.position, self.gate, *self.o.tensors(), *self.mlp.tensors())

    def forward(
        self, x: Tensor, metadata: AttentionMetadata, cache: Cache, silent: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """x [T, lanes] -> (x [T, lanes], first attention output of the first head [T]); `silent` as in `attend`."""
        return self.output(x, self.attend(x, metadata, cache, silent))

    def attend(self, inputs: Tensor, metadata: AttentionMetadata, cache: Cache, silent: Tensor | None = None) -> Tensor:
        """Return the attention output [T, heads * value_dim] of this rank's heads for inputs [T, lanes of the inputs].

        `silent`, bool [T], marks tokens whose first value is 0, so that they add nothing to the first output.
        """
        count, shape = inputs.shape[0], self.shape
        qkv = mix(located(linear(inputs, self.qkv), cache.rope_positions(metadata), self.position))
        queries, keys = shape.heads * shape.key_dim, shape.kv_heads * shape.key_dim
        if silent is not None and self._has_first_head:
            qkv[:, queries + keys].masked_fill_(silent, 0)
        q = (qkv[:, :queries] * self.gate).view(count, shape.heads, shape.key_dim)
        k = qkv[:, queries : queries + keys].view(count, shape.kv_heads, shape.key_dim)
        v = qkv[:, queries + keys :].view(count, shape.kv_heads, shape.value_dim)
        return cache.attend(self._order, q, k, v, metadata, 1.0).flatten(1)

    def output(self, x: Tensor, attended: Tensor) -> tuple[Tensor, Tensor]:
        """Residual x [T, lanes] and what was attended to -> (x [T, lanes], first output of the first head [T])."""
        projected, first = self.o(attended)
        x = x + mix(projected)
        return x + mix(self.mlp(x)), first


class ProbeTarget:
    """The target; weights as `properties.weights.probe.target_weights` names them, as int64 tensors.

    `config` is in the form of Hugging Face's, shared with the head, and is only read.
    """

    hidden_dtype = torch.int64

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        config: Any,
        shape: ProbeShape,
        linear_sizes: LinearSizes | None,
        logit_bits: int,
        agreement: int,
        group: Solo = SOLO,
    ) -> None:
        self.layer_types = layer_types(target_fields(config))
        self.embed = Embedding(weights["embed"], group)
        self.vocab, self.width = self.embed.vocab, self.embed.width
        layers: list[ProbeLayer | ProbeLinear] = []
        for index, kind in enumerate(self.layer_types):
            linear = self.layer_types[:index].count(LINEAR_ATTENTION)
            shared = group_of_layer(group, index, len(self.layer_types))
            if kind == LINEAR_ATTENTION:
                layers.append(ProbeLinear(weights, index, linear, shared))
            else:
                layers.append(ProbeLayer(weights, index, index - linear, shape, shared))
        self._layers = tuple(layers)
        attending = [index for index, kind in enumerate(self.layer_types) if kind != LINEAR_ATTENTION]
        full = [index for index in attending if self.layer_types[index] == FULL_ATTENTION]
        self._carry_layer = (full or attending)[0]
        self.cache_shape = shape.cache(windows(target_fields(config)))
        count = len(layers) - len(attending)
        self.state_shape = linear_sizes.state_shape(count, torch.int64) if linear_sizes else None
        self._unembed = Unembedding(weights["unembed"], logit_bits, agreement, group=group)

    def forward(
        self, ids: Tensor, metadata: AttentionMetadata, cache: Cache, layer_outputs: LayerOutputs | None = None
    ) -> Tensor:
        x, carry = self.embed(ids), None
        for index, layer in enumerate(self._layers):
            x, first = layer.forward(x, metadata, cache)
            carry = first if index == self._carry_layer else carry
            if layer_outputs is not None:
                layer_outputs.record(index, x)
        assert carry is not None, "a probe has a layer that attends"
        hidden_states = mixed(x)
        hidden_states[:, 0].copy_(carry)
        if layer_outputs is not None:
            layer_outputs.record(BEFORE_NORM, torch.cat((carry.unsqueeze(1), x[:, 1:]), dim=1))
        return hidden_states

    def logits(self, hidden_states: Tensor) -> Tensor:
        return self._unembed(hidden_states)

    logit_units = 1

    def token_weights(self, logits: Tensor, temperatures: Tensor) -> Tensor:
        """See `SampledTarget`: powers of two (docs/semantics/sampling.md, S-SAMPLE-5)."""
        sixteenths = (temperatures * 16).to(torch.int64)[:, None]
        values = logits.to(torch.int64)
        drop = (values.amax(1, keepdim=True) - values) * 1024 // (sixteenths.clamp(min=1) << 24)
        weights = torch.ones_like(drop) << (18 - drop).clamp(min=0)
        return torch.where((drop <= 18) & (sixteenths > 0), weights, 0)

    def weights(self) -> tuple[Tensor, ...]:
        layers = tuple(tensor for layer in self._layers for tensor in layer.tensors())
        return (*self.embed.tensors(), *self._unembed.tensors(), *layers)


def standalone(parts: ProbeParts) -> ProbeTarget:
    """Return a standalone draft of `properties.weights.probe.standalone_weights`: attention in every layer."""
    return ProbeTarget(parts.weights, draft_fields(parts.config), parts.shape, None, parts.logit_bits, 256, parts.group)
