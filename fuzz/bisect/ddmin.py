"""Delta debugging: a smallest set of parts with which something still fails.

A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002): `ddmin`, on sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from draftproof.properties.lib.errors import DraftproofError

Parts = frozenset[str]
Fails = Callable[[Sequence[Parts]], Sequence[bool]]
"""fails(sets) -> whether it fails with just these parts on, one for each set"""


class NotFailingError(DraftproofError, ValueError):
    """It does not fail with all parts on."""


class _Cached:
    """Results by set, so that none is worked out twice."""

    def __init__(self, fails: Fails) -> None:
        self._fails = fails
        self._known: dict[Parts, bool] = {}

    def __call__(self, sets: Sequence[Parts]) -> list[bool]:
        fresh = [one for one in dict.fromkeys(sets) if one not in self._known]
        if fresh:
            self._known.update(zip(fresh, self._fails(fresh), strict=True))
        return [self._known[one] for one in sets]


def ddmin(parts: Sequence[str], fails: Fails, *, width: int = 1) -> tuple[str, ...]:
    """Return a smallest set of parts with which it fails, in their order: without any one of them it does not.

    Where more parts never make a failure go away, no smaller set within it fails. `width` sets are asked for at a time.
    Raises NotFailingError if it does not fail with all parts.
    """
    cached, current = _Cached(fails), frozenset(parts)
    if not cached([current])[0]:
        raise NotFailingError("with every part on it does not fail")
    if cached([frozenset()])[0]:
        return ()
    pieces = 2
    while len(current) > 1:
        pieces = min(pieces, len(current))
        options = list(_options([part for part in parts if part in current], pieces))
        found = _first(options, cached, width)
        if found is None and pieces == len(current):
            break
        current, pieces = found or (current, 2 * pieces)
    return tuple(part for part in parts if part in current)


def _options(current: list[str], pieces: int) -> Iterator[tuple[Parts, int]]:
    """Each piece alone, then all but each; with the number of pieces to go on with."""
    bounds = [len(current) * place // pieces for place in range(pieces + 1)]
    chunks = [frozenset(current[low:high]) for low, high in pairwise(bounds)]
    for chunk in chunks:
        yield chunk, 2
    for chunk in chunks:
        yield frozenset(current) - chunk, max(pieces - 1, 2)


def _first(options: list[tuple[Parts, int]], fails: Fails, width: int) -> tuple[Parts, int] | None:
    """Return the first set that fails."""
    for start in range(0, len(options), width):
        some = options[start : start + width]
        for option, failed in zip(some, fails([parts for parts, _ in some]), strict=True):
            if failed:
                return option
    return None
