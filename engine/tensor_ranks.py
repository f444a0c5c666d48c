"""Tensor-parallel ranks: the collectives inside a forward, in which each rank runs its part of every layer.

`T` packed tokens, the same on every rank; `D` lanes, `Dr` lanes of one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from draftproof.engine.ranks import JOURNAL_DTYPES, DataParallelGroup, Issued, Observe, RankOp, Solo


class TensorGroup(Solo):
    """One tensor-parallel rank of a group: each has a part of every layer, and decides what all others decide.

    So nothing has to be agreed on, and no row belongs to another rank.
    """

    def __init__(self, group: DataParallelGroup) -> None:
        self._group, self.size, self.rank = group, group.size, group.rank

    @property
    def mismatch(self) -> str:  # type: ignore[override]
        """See Solo."""
        return self._group.mismatch

    def watch(self, observe: Observe) -> None:
        """See Solo."""
        self._group.watch(observe)

    def recording(self) -> AbstractContextManager[list[Issued]]:  # type: ignore[override]
        """See Solo."""
        return self._group.recording()

    def enter(self, collectives: Sequence[Issued]) -> None:
        """See Solo. Raises LockstepError."""
        self._group.enter(collectives)

    def lanes(self, count: int) -> slice:
        """Return which of `count` lanes are this rank's."""
        return self._group.lanes(count)

    def all_reduce(self, x: Tensor) -> Tensor:
        """[T, D] -> the sum over all ranks, in its place."""
        self._enter(RankOp.SUM, x)
        torch.ops.draftproof_ranks.sum(x, self._group.handle)
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        """[T, Dr] -> [T, ranks * Dr], the lanes of all ranks side by side."""
        everyone = x.new_empty((self.size * x.shape[0], x.shape[1]))
        self._enter(RankOp.GATHER, x)
        torch.ops.draftproof_ranks.gather(everyone, x, self._group.handle)
        return everyone.view(self.size, *x.shape).transpose(0, 1).reshape(x.shape[0], everyone.shape[1] * self.size)

    def _enter(self, op: RankOp, x: Tensor) -> None:
        self.enter((Issued(op, x.shape[0], x.shape[1], JOURNAL_DTYPES.get(x.dtype, 0)),))
