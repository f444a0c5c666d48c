"""Generated scenarios that the tests of a process share: each is drawn once.

Ask for the same seeds in many tests, and for the first scenarios of a list: those are made already.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from draftproof.properties.strategies import scenarios
from draftproof.properties.strategies.profiles import SIZES, Size
from draftproof.properties.strategies.turns import Turn, turns
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm
from draftproof.properties.values.scenario import Scenario


def generate(
    seed: int, count: int, drafts: Sequence[Algorithm] = ALGORITHMS[:1], sizes: Sequence[Size] = SIZES
) -> list[Scenario]:
    """Return what `scenarios.generate` returns, which test_strategies.py holds against it."""
    return [example(seed, turn) for turn in turns(seed, count, drafts, sizes)]


@cache
def example(seed: int, turn: Turn) -> Scenario:
    """Return the scenario of a turn."""
    return scenarios._example(seed, turn)
