"""Probe target and EAGLE head in the ring of integers modulo 2^64 (docs/semantics.md, "Probe models").

`T` packed tokens, `L` lanes of the target, `D` lanes of the head, `N` heads, `H` head sizes, `V` vocabulary; all int64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from draftproof import kernels
from draftproof.engine.models.base import Cache, CacheShape, Where

BOOST = 1 << 23


@dataclass(frozen=True)
class ProbeShape:
    """Sizes of one side (target or head)."""

    layers: int
    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int

    @property
    def cache(self) -> CacheShape:
        return CacheShape(self.layers, self.kv_heads, self.key_dim, self.value_dim, torch.int64)


def _linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = torch.empty((x.shape[0], weight.shape[0]), dtype=torch.int64, device=x.device)
    kernels.ring_linear(out, x, weight)
    return out


def _mix(x: torch.Tensor) -> torch.Tensor:
    """Mixed in place."""
    kernels.ring_mix(x, x, 0)
    return x


def _shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical shift right."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


class ProbeLayer:
    """Attention over mixed keys and queries with positions in them, then a mixing layer; residual throughout."""

    def __init__(self, weights: Mapping[str, torch.Tensor], index: int, shape: ProbeShape) -> None:
        prefix = f"layers.{index}"
        self.index, self.shape = index, shape
        self.qkv = torch.cat([weights[f"{prefix}.{name}.weight"] for name in "qkv"]).contiguous()
        self.position = torch.cat([weights[f"{prefix}.{name}.position"] for name in "qkv"])
        self.gate = weights[f"{prefix}.q.gate"]
        self.o, self.mlp = weights[f"{prefix}.o.weight"], weights[f"{prefix}.mlp.weight"]

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return (self.qkv, self.position, self.gate, self.o, self.mlp)

    def forward(self, x: torch.Tensor, where: Where, cache: Cache) -> tuple[torch.Tensor, torch.Tensor]:
        """x [T, lanes] -> (x [T, lanes], first attention output of the first head [T])."""
        count, shape = x.shape[0], self.shape
        mixed = _mix(torch.addcmul(_linear(x, self.qkv), where.positions.unsqueeze(1), self.position))
        queries, keys = shape.heads * shape.key_dim, shape.kv_heads * shape.key_dim
        q = (mixed[:, :queries] * self.gate).view(count, shape.heads, shape.key_dim)
        k = mixed[:, queries : queries + keys].view(count, shape.kv_heads, shape.key_dim)
        v = mixed[:, queries + keys :].view(count, shape.kv_heads, shape.value_dim)
        attended = cache.attend(self.index, q, k, v, where, 1.0)
        x = x + _mix(_linear(attended.view(count, -1), self.o))
        return x + _mix(_linear(x, self.mlp)), attended[:, 0, 0]


def _logits(hidden: torch.Tensor, unembed: torch.Tensor, bits: int, agreement: int, rows: torch.Tensor) -> torch.Tensor:
    """Integers below 2^24 as float32; the favourite of the carry is raised above the rest in `agreement` / 256."""
    base = _shift(_mix(_linear(hidden, unembed)), 64 - bits)
    carry = torch.empty_like(hidden[:, 0])
    kernels.ring_mix(carry, hidden[:, 0], 0)
    favourite = torch.where((carry & 255) < agreement, _shift(carry, 33) % unembed.shape[0], -1)
    return torch.add(base, rows == favourite.unsqueeze(1), alpha=BOOST).to(torch.float32)


class ProbeTarget:
    """The target; weights as `properties.values.probe.target_weights` names them, as int64 tensors."""

    hidden_dtype = torch.int64

    def __init__(self, weights: Mapping[str, torch.Tensor], shape: ProbeShape, logit_bits: int, agreement: int) -> None:
        self.cache_shape = shape.cache
        self.embed, self.unembed = weights["embed"], weights["unembed"]
        self.vocab, self.width = self.embed.shape
        self._layers = tuple(ProbeLayer(weights, index, shape) for index in range(shape.layers))
        self._bits, self._agreement = logit_bits, agreement
        self._ids = torch.arange(self.vocab, device=self.embed.device)

    def forward(self, ids: torch.Tensor, where: Where, cache: Cache) -> torch.Tensor:
        x = self.embed.index_select(0, ids)
        x, carry = self._layers[0].forward(x, where, cache)
        for layer in self._layers[1:]:
            x, _ = layer.forward(x, where, cache)
        hidden = _mix(x)
        hidden[:, 0].copy_(carry)
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return _logits(hidden, self.unembed, self._bits, self._agreement, self._ids)

    def weights(self) -> tuple[torch.Tensor, ...]:
        layers = tuple(tensor for layer in self._layers for tensor in layer.tensors())
        return (self.embed, self.unembed, self._ids, *layers)


class ProbeHead:
    """The EAGLE head; weights as `properties.values.probe.head_weights` names them, as int64 tensors."""

    def __init__(self, weights: Mapping[str, torch.Tensor], shape: ProbeShape, logit_bits: int) -> None:
        self.cache_shape = shape.cache
        self.embed, self.unembed = weights["embed"], weights["unembed"]
        self.fc, self.out, self.carry = weights["fc"], weights["out"], weights["carry.position"]
        self._layer = ProbeLayer(weights, 0, shape)
        self._bits = logit_bits
        self._ids = torch.arange(self.embed.shape[0], device=self.embed.device)

    def forward(self, ids: torch.Tensor, hidden: torch.Tensor, where: Where, cache: Cache) -> torch.Tensor:
        embedded = self.embed.index_select(0, ids)
        carry = hidden[:, 0] + _mix(embedded[:, 0] + (where.positions + 1) * self.carry)
        x = _mix(_linear(torch.cat([embedded, hidden], dim=1), self.fc))
        x, _ = self._layer.forward(x, where, cache)
        handed = _mix(_linear(x, self.out))
        handed[:, 0].copy_(carry)
        return handed

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return _logits(hidden, self.unembed, self._bits, 256, self._ids)

    def weights(self) -> tuple[torch.Tensor, ...]:
        return (self.embed, self.unembed, self.fc, self.out, self.carry, self._ids, *self._layer.tensors())
