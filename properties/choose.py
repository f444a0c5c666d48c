"""Choices: what a scenario or a call is made of is chosen through this protocol, by a seed or by Hypothesis."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from draftproof.properties.lib.errors import require_input

T = TypeVar("T")
LAST_SEED = 2**32 - 1
"""Seeds that users give are from 0 to this one."""


def require_seeded(seed: int, count: int) -> None:
    """Raise InputError unless there is such a list of a seed."""
    require_input(isinstance(seed, int) and 0 <= seed <= LAST_SEED, "seed", seed, f"a whole number, 0 .. {LAST_SEED}")
    require_input(isinstance(count, int) and count > 0, "count", count, "a whole number, 1 or more")


class Choose(Protocol):
    """Three kinds of choices. Each prefers nothing; what comes first is what Hypothesis shrinks toward."""

    def one_of(self, values: Sequence[T]) -> T:
        """Return one of the values; a value that is there twice is chosen twice as often."""
        ...

    def integer(self, least: int, most: int) -> int:
        """Return an integer from `least` to `most`, both included."""
        ...

    def boolean(self) -> bool:
        """Return False or True."""
        ...


class SeededChoose:
    """Choices that depend on a name alone.

    Only `random.Random.random()` is used: its sequence is the same in every release of Python.
    """

    def __init__(self, name: str) -> None:
        self._random = random.Random(name)

    def one_of(self, values: Sequence[T]) -> T:
        """Return one of the values. Raises IndexError if there is none."""
        return values[int(self._random.random() * len(values))]

    def integer(self, least: int, most: int) -> int:
        """Return an integer from `least` to `most`."""
        return least + int(self._random.random() * (most - least + 1))

    def boolean(self) -> bool:
        """Return False or True."""
        return self._random.random() < 0.5

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """Return the values in another order."""
        left = list(values)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in range(len(left))]


class DrawnChoose:
    """Choices that Hypothesis makes, inside of a composite strategy: it shrinks them.

    `draw` is what the composite is given. Hypothesis is imported when the first choice is made.
    """

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw

    def one_of(self, values: Sequence[T]) -> T:
        """Return one of the values."""
        from hypothesis import strategies as st

        chosen: T = self._draw(st.sampled_from(values))
        return chosen

    def integer(self, least: int, most: int) -> int:
        """Return an integer from `least` to `most`."""
        from hypothesis import strategies as st

        return int(self._draw(st.integers(least, most)))

    def boolean(self) -> bool:
        """Return False or True."""
        from hypothesis import strategies as st

        return bool(self._draw(st.booleans()))
