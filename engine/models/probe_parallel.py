"""Layers of a probe that tensor-parallel ranks share out, and whole ones without ranks (docs/semantics/ranks.md, S-TP).

As in Megatron-LM: projections of heads are cut by columns of what they give, those behind them by columns of what they
take, tables of tokens by rows. `T` packed tokens, `D` lanes, `V` vocabulary; all int64.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from draftproof.engine.models.probe_ops import SharedLinear, linear
from draftproof.engine.ranks import SOLO, Solo
from draftproof.engine.tensor_ranks import TensorGroup


def group_of_layer(group: Solo, index: int, count: int) -> Solo:
    """Return the group of layer `index` of `count`: data-parallel ranks share the last one only."""
    return group if isinstance(group, TensorGroup) or index == count - 1 else SOLO


class Embedding:
    """Rows of a table [V, D], with a part of the rows on each tensor-parallel rank: the other ranks add zeros."""

    def __init__(self, table: Tensor, group: Solo) -> None:
        self.vocab, self.width = table.shape
        self._group = group if isinstance(group, TensorGroup) else None
        self._table, self._first = table, 0
        if self._group:
            self._table, ids = vocabulary_part(table, self._group)
            self._first = int(ids[0])

    def __call__(self, ids: Tensor) -> Tensor:
        """ids [T] -> [T, D]."""
        if self._group is None:
            return self._table.index_select(0, ids)
        own = ids - self._first
        others = (own < 0) | (own >= self._table.shape[0])
        rows = self._table.index_select(0, own.masked_fill(others, 0))
        return self._group.all_reduce(rows.masked_fill(others.unsqueeze(1), 0))

    def tensors(self) -> tuple[Tensor, ...]:
        return (self._table,)


def vocabulary_part(table: Tensor, group: TensorGroup) -> tuple[Tensor, Tensor]:
    """Return the rank's rows of a table [V, D] and their numbers: as many on each rank, with zeros behind the last."""
    count = -(-table.shape[0] // group.size)
    ids = torch.arange(group.rank * count, (group.rank + 1) * count, device=table.device)
    rows = table[group.rank * count : (group.rank + 1) * count]
    return torch.nn.functional.pad(rows, (0, 0, 0, count - rows.shape[0])), ids


class OutputProjection:
    """What heads attended to, times the weight of all of them; each rank multiplies its own heads, and all add up.

    In a row of its own the sum has the first output of the first head, which one rank has, and all go on from.
    """

    def __init__(self, weight: Tensor, group: Solo) -> None:
        self._group = group if isinstance(group, TensorGroup) else None
        self._weight = weight
        if self._group:
            first = weight.new_zeros((1, weight.shape[1]))
            first[0, 0] = int(self._group.rank == 0)
            self._weight = torch.cat([weight, first])

    def __call__(self, attended: Tensor) -> tuple[Tensor, Tensor]:
        """[T, the rank's heads * value_dim] -> ([T, D], the first output of the first head [T])."""
        projected = linear(attended, self._weight)
        if self._group is None:
            return projected, attended[:, 0]
        everyone = self._group.all_reduce(projected)
        return everyone[:, :-1].contiguous(), everyone[:, -1]

    def tensors(self) -> tuple[Tensor, ...]:
        return (self._weight,)


class MixingLinear:
    """x [T, D] times a weight; this rank has the columns of its own lanes, and the ranks add up their products."""

    def __init__(self, weight: Tensor, group: TensorGroup) -> None:
        self._weight, self._group = weight, group

    def __call__(self, x: Tensor) -> Tensor:
        """[T, D] -> [T, D]."""
        return self._group.all_reduce(linear(x[:, self._group.lanes(x.shape[1])].contiguous(), self._weight))

    def tensors(self) -> tuple[Tensor, ...]:
        return (self._weight,)


def mixing(weight: Tensor, group: Solo) -> MixingLinear | SharedLinear:
    """Return the mixing of a layer, whole or as the ranks of a group share it."""
    return MixingLinear(weight, group) if isinstance(group, TensorGroup) else SharedLinear(weight, group)


def reduced(group: Solo) -> Callable[[Tensor], Tensor]:
    """Return what makes the sum over all ranks of a product that each has a part of."""
    return group.all_reduce if isinstance(group, TensorGroup) else _as_it_is


def _as_it_is(x: Tensor) -> Tensor:
    return x
