"""Delta debugging over a lattice: a smallest set of parts with which something still fails.

A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002): `ddmin`, on sets. A part may
need others; a set of which some parts lack what they need stands for the largest one below it that is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from draftproof.errors import DraftproofError

Parts = frozenset[str]
Fails = Callable[[Sequence[Parts]], Sequence[bool]]
"""fails(sets) -> whether it fails with just these parts on, one for each set"""
Needs = Mapping[str, Collection[str]]


class NotFailingError(DraftproofError, ValueError):
    """It does not fail with all parts on."""


class Cached:
    """Results by set, so that none is worked out twice; `runs` counts those that were."""

    def __init__(self, fails: Fails) -> None:
        self._fails = fails
        self._known: dict[Parts, bool] = {}

    @property
    def runs(self) -> int:
        return len(self._known)

    def __call__(self, sets: Sequence[Parts]) -> list[bool]:
        fresh = [one for one in dict.fromkeys(sets) if one not in self._known]
        if fresh:
            self._known.update(zip(fresh, self._fails(fresh), strict=True))
        return [self._known[one] for one in sets]


def closed(parts: Parts, needs: Needs) -> Parts:
    """Return the parts of which everything that they need is there."""
    while True:
        kept = frozenset(part for part in parts if parts.issuperset(needs.get(part, ())))
        if kept == parts:
            return kept
        parts = kept


def ddmin(parts: Sequence[str], fails: Fails, *, needs: Needs | None = None, width: int = 1) -> tuple[str, ...]:
    """Return a smallest set of parts with which it fails, in their order: without any one of them it does not.

    Where more parts never make a failure go away, no smaller set within it fails. `width` sets are asked for at a time.
    Raises NotFailingError if it does not fail with all parts.
    """
    cached, needed = fails if isinstance(fails, Cached) else Cached(fails), needs or {}
    current = closed(frozenset(parts), needed)
    if not cached([current])[0]:
        raise NotFailingError("with every part on it does not fail")
    if cached([frozenset()])[0]:
        return ()
    pieces = 2
    while len(current) > 1:
        pieces = min(pieces, len(current))
        options = _options([part for part in parts if part in current], pieces, needed)
        found = _first([(one, next_) for one, next_ in options if one and one != current], cached, width)
        if found is None and pieces == len(current):
            break
        current, pieces = found or (current, 2 * pieces)
    return tuple(part for part in parts if part in current)


def _options(current: list[str], pieces: int, needs: Needs) -> Iterator[tuple[Parts, int]]:
    """Each piece alone, then all but each; with the number of pieces to go on with."""
    bounds = [len(current) * place // pieces for place in range(pieces + 1)]
    chunks = [frozenset(current[low:high]) for low, high in pairwise(bounds)]
    for chunk in chunks:
        yield closed(chunk, needs), 2
    for chunk in chunks:
        yield closed(frozenset(current) - chunk, needs), max(pieces - 1, 2)


def _first(options: list[tuple[Parts, int]], fails: Fails, width: int) -> tuple[Parts, int] | None:
    """Return the first set that fails."""
    for start in range(0, len(options), width):
        some = options[start : start + width]
        for option, failed in zip(some, fails([parts for parts, _ in some]), strict=True):
            if failed:
                return option
    return None
