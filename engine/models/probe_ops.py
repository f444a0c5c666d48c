"""Ring arithmetic that probes share; int64, modulo 2^64. `T` rows, `D` lanes of the target, `V` vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from draftproof import kernels
from draftproof.engine.ranks import SOLO, DataParallelGroup, Solo

BOOST = 1 << 23


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x [T, I] @ weight [O, I].T: [T, O]."""
    out = x.new_empty((x.shape[0], weight.shape[0]))
    kernels.ring_linear(out, x, weight)
    return out


def located(x: Tensor, positions: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """x [T, O] with what positions [T, A] add in each of their A axes, by weights [O]."""
    if len(weights) == 1:
        return torch.addcmul(x, positions, weights[0])
    for axis, weight in enumerate(weights):
        x = torch.addcmul(x, positions[:, axis : axis + 1], weight)
    return x


def by_axis(weight: Tensor) -> tuple[Tensor, ...]:
    """Return the weights [O] of each axis of positions, of weight [A, O] or, of one axis, [O]."""
    return weight.view(-1, weight.shape[-1]).unbind()


class SharedLinear:
    """x [T, I] @ weight [O, I].T, with some of the I lanes on each rank of a group; every rank sees all rows."""

    def __init__(self, weight: Tensor, group: Solo = SOLO) -> None:
        self._group = group
        self._weight, self._lanes = weight, slice(None)
        if isinstance(group, DataParallelGroup):
            self._lanes = group.lanes(weight.shape[1])
            self._weight = weight[:, self._lanes].contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        """[T, I] -> [T, O]."""
        if not isinstance(self._group, DataParallelGroup):
            return linear(x, self._weight)
        parts = linear(self._group.gather(x)[:, self._lanes].contiguous(), self._weight)
        return self._group.sum(parts, x.shape[0])

    def tensors(self) -> tuple[Tensor, ...]:
        return (self._weight,)


def mix(x: Tensor) -> Tensor:
    """Mixed in place."""
    kernels.ring_mix(x, x, 0)
    return x


def mixed(x: Tensor) -> Tensor:
    """Mixed into memory of its own."""
    out = x.new_empty(x.shape)
    kernels.ring_mix(out, x, 0)
    return out


def shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift right."""
    return torch.bitwise_and(x >> bits, (1 << (64 - bits)) - 1)


def favourite(carry: Tensor, vocab: int) -> Tensor:
    """Return the token 0 .. V - 1 that a mixed carry, of any shape, chooses."""
    return shift(carry, 33) % vocab
