"""Every value of every coin of a computation, as exact fractions, in place of random numbers.

A coin of a position is a number x, uniform in [0, 1), of which floor(x M) is asked for whatever sums M come: asked
again, also for another sum, x is the same.
"""

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

from draftproof.reference.sampling import Coin

Outcome = TypeVar("Outcome")
Coins = Callable[[int, int], Coin]
"""(seed, position) -> the coins of the position"""


class _Branch:
    """One path through all values: which interval of those that are possible each new question leaves to its x."""

    def __init__(self, path: list[int]) -> None:
        self.path, self.widths = path, list[int]()
        self._bounds: dict[tuple[int, int], tuple[Fraction, Fraction]] = defaultdict(lambda: (Fraction(0), Fraction(1)))

    def coins(self, _seed: int, position: int) -> Coin:
        return lambda draw, most: self._ask((position, draw), most)

    def _ask(self, at: tuple[int, int], most: int) -> int:
        low, high = self._bounds[at]
        first, end = low * most // 1, -(-high * most // 1)
        place = len(self.widths)
        self.widths.append(end - first)
        if place == len(self.path):
            self.path.append(0)
        value = first + self.path[place]
        self._bounds[at] = max(low, Fraction(value, most)), min(high, Fraction(value + 1, most))
        return value

    @property
    def probability(self) -> Fraction:
        share = Fraction(1)
        for low, high in self._bounds.values():
            share *= high - low
        return share


def law_of(computation: Callable[[Coins], Outcome]) -> dict[Outcome, Fraction]:
    """Return the probability of each outcome of a computation that takes its coins from what it is given."""
    law: dict[Outcome, Fraction] = defaultdict(Fraction)
    path: list[int] = []
    while True:
        branch = _Branch(path)
        law[computation(branch.coins)] += branch.probability
        while path and path[-1] + 1 == branch.widths[len(path) - 1]:
            path.pop()
        if not path:
            return dict(law)
        path[-1] += 1
