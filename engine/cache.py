"""Memory of one model: paged KV, and states beside it.

`S` slots (pages * page size), `N` kv heads, `H` head sizes, `T` packed tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from draftproof import kernels
from draftproof.engine.models.base import CacheShape, RecurrentWeights, VerifyRows, Where
from draftproof.engine.models.config_fields import FULL, LINEAR
from draftproof.engine.probes import Probes
from draftproof.engine.states.base import StateCache


def pool_shapes(name: str, shape: CacheShape, slots: int) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """The arena entries of a cache: `name`.k.i [S, N, Hk] and `name`.v.i [S, N, Hv] for each layer i."""
    entries: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
    for layer in range(shape.layers):
        entries[f"{name}.k.{layer}"] = ((slots, shape.kv_heads, shape.key_dim), shape.dtype)
        entries[f"{name}.v.{layer}"] = ((slots, shape.kv_heads, shape.value_dim), shape.dtype)
    return entries


@dataclass(frozen=True)
class PagedCache:
    """Key and value pools of every layer, and the page table that says which slots a request owns."""

    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]
    table: torch.Tensor
    page_size: int

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, where: Where, scale: float
    ) -> torch.Tensor:
        """Write the new entries, then attend to positions 0 .. where.visible, else where.positions: [T, Nq, Hv]."""
        self.write(layer, k, v, where)
        keys, values = self.keys[layer], self.values[layer]
        last = where.positions if where.visible is None else where.visible
        out = q.new_empty((q.shape[0], q.shape[1], values.shape[2]))
        kernels.paged_attention(out, q, keys, values, self.table, where.rows, last, self.page_size, scale)
        return out

    def write(self, layer: int, k: torch.Tensor, v: torch.Tensor, where: Where) -> None:
        """Write the new entries and attend to nothing."""
        kernels.kv_write(self.keys[layer], self.values[layer], k, v, where.slots)

    def recur(
        self, layer: int, weights: RecurrentWeights, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, where: Where
    ) -> torch.Tensor:
        """Raises TypeError: there are no states here."""
        raise TypeError(f"linear layer {layer} of a model that declares none")


@dataclass(frozen=True)
class TargetCache(PagedCache):
    """A target's cache, with the states of its linear layers if it has any.

    Which memory a layer uses is decided by what the layer calls, and by no list.
    """

    states: StateCache | None
    probes: Probes

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, where: Where, scale: float
    ) -> torch.Tensor:
        """See PagedCache."""
        self.probes.routed(FULL)
        return super().attend(layer, q, k, v, where, scale)

    def recur(
        self, layer: int, weights: RecurrentWeights, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, where: Where
    ) -> torch.Tensor:
        """Through the states that `where` names, of a verify or of a prefill: [T, U, E]."""
        self.probes.routed(LINEAR)
        if self.states is None:
            return super().recur(layer, weights, x, a, b, where)
        if isinstance(where.states, VerifyRows):
            return self.states.verify(layer, weights, x, a, b, where.states)
        if where.states is None:
            raise TypeError(f"linear layer {layer} was not told which states its tokens belong to")
        return self.states.prefill(layer, weights, x, a, b, where.states)
