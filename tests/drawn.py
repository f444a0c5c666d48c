"""Generated scenarios that the tests of a process share: each list is made once, as far as it was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from draftproof.properties.strategies import scenarios
from draftproof.properties.strategies.scenarios import Listed
from draftproof.properties.strategies.shapes import SIZES, Size
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm
from draftproof.properties.values.scenario import Scenario

_MOST = 1000


def generate(
    seed: int, count: int, drafts: Sequence[Algorithm] = ALGORITHMS[:1], sizes: Sequence[Size] = SIZES
) -> list[Scenario]:
    """Return what `scenarios.generate` returns, which test_strategies.py holds against it."""
    return [one.scenario for one in listed(seed, count, drafts, sizes)]


def listed(
    seed: int, count: int, drafts: Sequence[Algorithm] = ALGORITHMS[:1], sizes: Sequence[Size] = SIZES
) -> list[Listed]:
    """Return what `scenarios.listed` yields."""
    made, left = _list(seed, tuple(drafts), tuple(sizes))
    while len(made) < count:
        made.append(next(left))
    return made[:count]


@cache
def _list(seed: int, drafts: tuple[Algorithm, ...], sizes: tuple[Size, ...]) -> tuple[list[Listed], Iterator[Listed]]:
    return [], scenarios.listed(seed, _MOST, drafts, sizes)
