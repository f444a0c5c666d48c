"""Lists of examples of a strategy, as a function of a seed."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


def examples(strategy: SearchStrategy[T], seed_: int, count: int) -> list[T]:
    """Return `count` examples, a function of the arguments only; the first is always the smallest there is."""
    found: list[T] = []

    @seed(seed_)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found
