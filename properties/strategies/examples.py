"""Lists of examples of a strategy, as a function of a seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.internal.conjecture import providers
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

    with _no_constants_of_sources():
        collect()
    return found


@contextmanager
def _no_constants_of_sources() -> Iterator[None]:
    """Keep Hypothesis from drawing constants that it reads in the sources a process happens to have imported."""
    known = providers._get_local_constants
    none = providers.Constants()
    providers.CONSTANTS_CACHE.cache.clear()
    providers._get_local_constants = lambda: none
    try:
        yield
    finally:
        providers._get_local_constants = known
        providers.CONSTANTS_CACHE.cache.clear()
