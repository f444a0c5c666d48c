"""What a campaign runs next: lists of scenarios, one after another, each of which meets every pair of points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from draftproof.properties.strategies.scenarios import Listed, listed
from draftproof.properties.values.drafts import Algorithm
from draftproof.properties.values.scenario import Scenario

BLOCK = 24
"""Scenarios of a block, after which a campaign looks at its clock."""
_CHAPTER = 25 * BLOCK
"""Scenarios of a list: every pair meets, and most triples."""
_STRIDE = 1_000_003


class Proposed(NamedTuple):
    """A scenario, and where it comes from: the shape of its requests."""

    scenario: Scenario
    origin: str


class Guide:
    """Proposes blocks of scenarios for a campaign. A block is a function of seed, drafts and its number only."""

    def __init__(self, seed: int, drafts: Sequence[Algorithm]) -> None:
        self._seed, self._drafts = seed, tuple(drafts)

    def block(self, number: int, seen: Mapping[str, int], corpus: Sequence[Scenario]) -> list[Proposed]:
        """Return block 0, 1, ..; nothing of what was seen or kept changes it."""
        del seen, corpus
        chapter, first = divmod(number * BLOCK, _CHAPTER)
        made = _chapter(self._seed * _STRIDE + chapter, self._drafts)
        return [Proposed(one.scenario, f"shape {one.row.shape}") for one in made.first(first + BLOCK)[first:]]


class _Chapter:
    """A list that is made as far as it was asked for."""

    def __init__(self, listed_: Iterator[Listed]) -> None:
        self._left, self._made = listed_, list[Listed]()

    def first(self, count: int) -> list[Listed]:
        """Return the first scenarios of the list."""
        while len(self._made) < count:
            self._made.append(next(self._left))
        return self._made[:count]


@lru_cache(maxsize=2)
def _chapter(seed: int, drafts: tuple[Algorithm, ...]) -> _Chapter:
    return _Chapter(listed(seed, _CHAPTER, drafts))
