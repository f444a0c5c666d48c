"""Lists of examples of a strategy, as a function of a seed; choices that are made often."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.cache import LRUCache
from hypothesis.internal.conjecture import providers
from hypothesis.internal.conjecture.engine import ConjectureRunner
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
P = ParamSpec("P")


def examples(strategy: SearchStrategy[T], seed_: int, count: int, *, varied: bool = True) -> list[T]:
    """Return `count` examples, a function of the arguments only; the first is always the smallest there is.

    With `varied`, as Hypothesis has it, many are made from the one before; without, each is drawn by itself.
    """
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

    # By default Hypothesis reads and tokenizes the source of `collect`, for a name under which nothing is kept here.
    collect._hypothesis_internal_database_key = b""  # type: ignore[attr-defined]
    with no_constants_of_sources(), nullcontext() if varied else _each_by_itself():
        collect()
    return found


# Hypothesis looks over every new strategy, which takes longer than the draw: a scenario is half as dear with these.
def composed(function: Callable[Concatenate[st.DrawFn, P], T]) -> Callable[P, SearchStrategy[T]]:
    """Make a composite strategy of a function whose arguments are hashable, the same object for the same arguments."""
    return cast(Callable[P, SearchStrategy[T]], lru_cache(maxsize=4096, typed=True)(st.composite(function)))


@lru_cache(maxsize=4096)
def integers(low: int, high: int) -> SearchStrategy[int]:
    """Return the strategy that draws one of low..high, the same object for the same limits."""
    return st.integers(low, high)


def sampled(values: Iterable[T]) -> SearchStrategy[T]:
    """Return the strategy that draws one of these hashable values, the same object for values that are equal."""
    chosen = tuple(values)
    return _sampled(chosen, tuple(map(type, chosen)))


@lru_cache(maxsize=4096)
def _sampled(values: tuple[Any, ...], _types: tuple[type, ...]) -> SearchStrategy[Any]:
    """Make the strategy; types tell False from 0, which are equal."""
    return st.sampled_from(values)


@contextmanager
def _each_by_itself() -> Iterator[None]:
    """Draw each example anew: of small cases that are made from others most are the same."""
    original = ConjectureRunner.generate_mutations_from
    ConjectureRunner.generate_mutations_from = lambda *_: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        ConjectureRunner.generate_mutations_from = original  # type: ignore[method-assign]


_PERMITTED = LRUCache[Any, Any](4096)
"""What `no_constants_of_sources` leaves of Hypothesis' own constants, by what is drawn."""


@contextmanager
def no_constants_of_sources() -> Iterator[None]:
    """Keep Hypothesis from drawing constants that it reads in the sources a process happens to have imported."""
    known, permitted = providers._get_local_constants, providers.CONSTANTS_CACHE
    none = providers.Constants()
    providers._get_local_constants, providers.CONSTANTS_CACHE = lambda: none, _PERMITTED
    try:
        yield
    finally:
        providers._get_local_constants, providers.CONSTANTS_CACHE = known, permitted
