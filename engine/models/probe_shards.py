"""What a tensor-parallel rank has of a probe's layers: its heads, its lanes of the mixing (S-TP).

`D` lanes, `C` width of the convolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from draftproof.engine.models.base import LinearSizes
from draftproof.engine.ranks import Solo
from draftproof.engine.tensor_ranks import TensorGroup

S = TypeVar("S")
_BY_ROW = ("q.weight", "q.gate", "k.weight", "v.weight", "k.context", "v.context")
_BY_ROW_LINEAR = ("z.weight", "a.weight", "b.weight", "a_log", "dt_bias", "start.ssm")
_BY_LAST = ("q.position", "k.position", "v.position", "o.weight")
_CHANNELS = {"qkv.weight": 0, "conv.weight": 0, "start.conv": 1}
"""Queries, keys and values of the convolution, one behind the other along this dimension."""


def shard(weights: Mapping[str, Tensor], group: Solo, linear: LinearSizes | None = None) -> Mapping[str, Tensor]:
    """Return the weights with this rank's part of every layer; all of them, unless the group is a tensor-parallel one.

    Weights outside of layers are left whole: they are divided by tokens elsewhere.
    """
    if not isinstance(group, TensorGroup):
        return weights
    return {name: _part(name.split(".", 2)[-1], tensor, group, linear) for name, tensor in weights.items()}


def _part(name: str, tensor: Tensor, group: TensorGroup, linear: LinearSizes | None) -> Tensor:
    """Return the part of a layer's tensor: rows, or columns, of the heads of the rank, which are next to each other."""
    if name in _BY_ROW or name in _BY_ROW_LINEAR:
        return _chunk(tensor, 0, group)
    if name in _BY_LAST:
        return _chunk(tensor, -1, group)
    if name == "mlp.weight":
        return tensor[:, group.lanes(tensor.shape[1])].contiguous()
    if name in _CHANNELS and linear is not None:
        dim = _CHANNELS[name]
        sections = tensor.split([linear.keys, linear.keys, linear.values], dim)
        return torch.cat([_chunk(section, dim, group) for section in sections], dim).contiguous()
    return tensor


def _chunk(tensor: Tensor, dim: int, group: TensorGroup) -> Tensor:
    return tensor.chunk(group.size, dim)[group.rank].contiguous()


def heads_of(sizes: S, group: Solo, *names: str) -> S:
    """Return sizes with one rank's numbers of heads under these names."""
    if not isinstance(group, TensorGroup):
        return sizes
    return replace(sizes, **{name: getattr(sizes, name) // group.size for name in names})  # type: ignore[type-var]
