"""Functional coverage: of all that a run can be, what has been; computed from traces.

Coverpoints and their crosses are declared (points.py), impossible bins with a reason (impossible.py); facts.py and
requests.py read the value of every point off a run.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter

from draftproof.properties.coverage.facts import samples
from draftproof.properties.coverage.impossible import impossible, reason
from draftproof.properties.coverage.points import CROSSES, POINTS, ROUND_POINTS, name_of, split
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm

__all__ = ["CROSSES", "POINTS", "bins", "holes", "impossible", "split", "universe"]

# Of every point, in their order.
_Values = tuple[str | None, ...]
# Points, and values of one, that some drafts have and others do not.
_ONLY: dict[str, tuple[Algorithm, ...]] = {"chain": ("mtp",), "block": ("dflash",), "match": ("ngram",)}
_OF_NGRAM = ("limit", "found")
_ORDER = tuple(POINTS)
# A cross of one is read as a tuple of two, to have a tuple.
_READ = {
    cross: itemgetter(*(_ORDER.index(point) for point in points), *(() if len(points) > 1 else (0,)))
    for cross, points in CROSSES.items()
}
_OF_ROUNDS = {cross for cross, points in CROSSES.items() if set(points) & set(ROUND_POINTS)}
_named = lru_cache(maxsize=1 << 13)(name_of)


def bins(evidence: Evidence) -> frozenset[str]:
    """The names of the bins that a run hit; impossible ones among them, should it hit any."""
    requests: set[_Values] = set()
    rounds: set[_Values] = set()
    for every, of_rounds in samples(evidence):
        requests.add(_in_order(every))
        rounds.update(map(_in_order, of_rounds))
    return frozenset(_hit(requests, rounds))


def _in_order(facts: Mapping[str, str | None]) -> _Values:
    return tuple(map(facts.get, _ORDER))


def _hit(requests: Iterable[_Values], rounds: Iterable[_Values]) -> Iterator[str]:
    for cross, points in CROSSES.items():
        for values in set(map(_READ[cross], rounds if cross in _OF_ROUNDS else requests)):
            values = values[: len(points)]
            if None not in values:
                yield _named(cross, values)


@lru_cache(maxsize=64)
def _universe(drafts: frozenset[Algorithm]) -> tuple[str, ...]:
    found = []
    for cross, points in CROSSES.items():
        for values in itertools.product(*(POINTS[point] for point in points)):
            pairs = dict(zip(points, values, strict=True))
            if _reached(pairs, drafts) and not reason(pairs):
                found.append(name_of(cross, values))
    return tuple(found)


def _reached(values: Mapping[str, str], drafts: frozenset[Algorithm]) -> bool:
    """Whether one of the drafts has these values at all."""
    able = drafts if "draft" not in values else drafts & {values["draft"]}
    for point, value in values.items():
        if point in _ONLY:
            able &= frozenset(_ONLY[point])
        if (point, value) == _OF_NGRAM:
            able &= frozenset({"ngram"})
    return bool(able)


def universe(drafts: Sequence[Algorithm]) -> tuple[str, ...]:
    """The bins that scenarios of these drafts can hit, in the order of CROSSES.

    Raises ValueError for no draft, and for an unknown one.
    """
    unknown = sorted(set(drafts) - set(ALGORITHMS))
    if unknown or not drafts:
        raise ValueError(f"drafts is {list(drafts)}, allowed: some of {', '.join(ALGORITHMS)}")
    return _universe(frozenset(drafts))


def holes(seen: Container[str], drafts: Sequence[Algorithm]) -> tuple[str, ...]:
    """The bins of `universe` that have not been seen."""
    return tuple(name for name in universe(drafts) if name not in seen)
