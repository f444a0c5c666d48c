"""What the engine asks of a model and of a draft head.

`T` packed tokens, `D` hidden width, `V` vocabulary, `N` heads, `H` head size, `S` KV slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True)
class Where:
    """Where each of T packed tokens belongs: request table row, position, and KV slot; all int64 [T]."""

    rows: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor


@dataclass(frozen=True)
class CacheShape:
    """What one KV entry looks like: `layers` pairs of [N, key_dim] and [N, value_dim] of `dtype`."""

    layers: int
    kv_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype


class Cache(Protocol):
    """Paged KV memory of one model."""

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, where: Where, scale: float
    ) -> torch.Tensor:
        """Write k [T, N, Hk] and v [T, N, Hv] to their slots, then attend with q [T, Nq, Hk]: [T, Nq, Hv]."""
        ...


class Target(Protocol):
    """A target language model."""

    cache_shape: CacheShape
    width: int
    vocab: int
    hidden_dtype: torch.dtype

    def forward(self, ids: torch.Tensor, where: Where, cache: Cache) -> torch.Tensor:
        """Hidden states [T, D] after the final norm."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[T, D] -> [T, V], float."""
        ...

    def weights(self) -> tuple[torch.Tensor, ...]:
        """Every tensor that forward and logits read, for the graphs' declared memory."""
        ...


class Head(Protocol):
    """An EAGLE head: entry i takes (token i + 1, hidden i) and hands on a stand-in for hidden i + 1."""

    cache_shape: CacheShape

    def forward(self, ids: torch.Tensor, hidden: torch.Tensor, where: Where, cache: Cache) -> torch.Tensor:
        """ids [T], hidden [T, D] -> handed-on states [T, D]."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[T, D] -> [T, V], float."""
        ...

    def weights(self) -> tuple[torch.Tensor, ...]: ...
