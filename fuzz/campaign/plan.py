"""What a campaign runs: lists of scenarios, one after another; in each list every pair of points meets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from draftproof.properties.strategies.scenarios import Listed, listed
from draftproof.properties.values.drafts import Algorithm
from draftproof.properties.values.scenario import Scenario

BLOCK = 24
"""Scenarios of a block, after which a campaign looks at its clock."""
LIST = 25 * BLOCK
"""Scenarios of a list: every pair meets, and most triples."""
_STRIDE = 1_000_003


class Planned(NamedTuple):
    """A scenario, and where it comes from: the shape of its requests."""

    scenario: Scenario
    origin: str


class CampaignPlan:
    """The blocks of a campaign, each a function of seed, drafts and its number only.

    One list follows the other, so that a campaign begins to meet pairs again, of other scenarios.
    """

    def __init__(self, seed: int, drafts: Sequence[Algorithm]) -> None:
        self._seed, self._drafts = seed, tuple(drafts)

    def block(self, number: int) -> list[Planned]:
        """Return block 0, 1, .."""
        place, first = divmod(number * BLOCK, LIST)
        made = _list(self._seed * _STRIDE + place, self._drafts)
        return [Planned(one.scenario, f"shape {one.row.shape}") for one in made.first(first + BLOCK)[first:]]


class _List:
    """A list that is made as far as it was asked for."""

    def __init__(self, left: Iterator[Listed]) -> None:
        self._left, self._made = left, list[Listed]()

    def first(self, count: int) -> list[Listed]:
        """Return the first scenarios of the list."""
        while len(self._made) < count:
            self._made.append(next(self._left))
        return self._made[:count]


@lru_cache(maxsize=2)
def _list(seed: int, drafts: tuple[Algorithm, ...]) -> _List:
    return _List(listed(seed, LIST, drafts))
