"""The collectives that each rank of a world has entered, in memory that all of them and their parent share.

A record is made before its collective is entered. So if ranks enter different collectives, the last one to arrive sees
it, and the parent can say what each rank waits in.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

_MOST = 1 << 16
"""Collectives of one run that are kept."""
_HEADER, _WORDS = 2, 4


class CollectiveOp(IntEnum):
    """What ranks do together: agree on numbers, give each other rows, or add up rows."""

    AGREE = 1
    GATHER = 2
    SUM = 3


class Entered(NamedTuple):
    """A collective, as each rank issues it: its operation, and the shape and dtype that all of them have to have.

    `dtype` is 1 of int64, 2 of float32, 0 of another.
    """

    op: int
    rows: int
    lanes: int
    dtype: int = 1

    def __str__(self) -> str:
        known = next((one.name.lower() for one in CollectiveOp if one == self.op), f"operation {self.op}")
        sent = {1: "", 2: " of float32"}.get(self.dtype, " of another dtype")
        return f"{known} [{self.rows}, {self.lanes}]{sent}"


class RankJournal:
    """The records of all `ranks`, in a file; each rank writes its own."""

    def __init__(self, path: Path, ranks: int) -> None:
        size = _HEADER + _MOST * _WORDS
        mode: Literal["r+", "w+"] = "r+" if path.exists() else "w+"
        # Of the map itself every element would be a map, too.
        self._words = np.memmap(path, dtype=np.int64, mode=mode, shape=(ranks, size)).view(np.ndarray)
        self.ranks = ranks

    def clear(self) -> None:
        """Begin a run."""
        self._words[:, :_HEADER] = 0

    def enter(self, rank: int, entered: tuple[int, int, int, int]) -> int:
        """Record what a rank is about to enter; return which of its collectives that is, from 0 on."""
        own = self._words[rank]
        number = int(own[0])
        start = _HEADER + number % _MOST * _WORDS
        own[start : start + _WORDS] = entered
        own[0] = number + 1
        return number

    def count(self, rank: int) -> int:
        """Return how many a rank has entered."""
        return int(self._words[rank, 0])

    def entered(self, rank: int, number: int) -> Entered:
        """Return one that it has entered."""
        start = _HEADER + number % _MOST * _WORDS
        return Entered(*self._words[rank, start : start + _WORDS].tolist())

    def others_at(self, rank: int, number: int) -> list[tuple[int, Entered]]:
        """Return the collectives that other ranks have entered under this number, as far as they have come."""
        return [
            (other, self.entered(other, number))
            for other in range(self.ranks)
            if other != rank and self.count(other) > number
        ]

    def parting(self) -> int | None:
        """Return the first collective that two ranks entered as different ones: others may not have come to it yet."""
        counts = [self.count(rank) for rank in range(self.ranks)]
        for number in range(max(counts)):
            if len({self.entered(rank, number) for rank, count in enumerate(counts) if count > number}) > 1:
                return number
        return None

    def give_up(self, rank: int) -> None:
        """Record that a rank waits for ever, since another has entered something else."""
        self._words[rank, 1] = 1

    @property
    def is_stuck(self) -> bool:
        return bool(self._words[:, 1].any())
