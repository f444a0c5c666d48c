"""Functional coverage: which bins, of all that a run can be, have been hit; computed from traces.

Coverpoints and their crosses are declared (points.py), impossible bins with a reason (impossible.py). The value of
every point is a field of a sample (samples.py), and counts (counts.py) are sums over the same samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter, itemgetter

from draftproof.properties.coverage.impossible import RULES, impossible, reason
from draftproof.properties.coverage.points import (
    CROSSES,
    POINTS,
    REQUEST_POINTS,
    ROUND_POINTS,
    drafts_with,
    name_of,
    split,
)
from draftproof.properties.coverage.read_rounds import read_samples
from draftproof.properties.coverage.samples import BatchSample, RoundSample, RunSample
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm

__all__ = ["CROSSES", "POINTS", "bins", "holes", "impossible", "split", "universe"]


def _field(point: str) -> str:
    """Return where a sample of a request, a batch or a round has the value of a point."""
    name = point.replace(" ", "_")
    return f"run.{name}" if name in RunSample._fields else name


_BATCH_POINTS = tuple(point for point in ROUND_POINTS if point in BatchSample._fields)
_OWN_POINTS = tuple(point for point in ROUND_POINTS if point not in _BATCH_POINTS)
_OF_REQUEST, _OF_ROUND, _OF_BATCH = (
    attrgetter(*map(_field, points)) for points in (REQUEST_POINTS, _OWN_POINTS, _BATCH_POINTS)
)
_NO_BATCH = (None,) * len(_BATCH_POINTS)
_ORDER = (*REQUEST_POINTS, *_OWN_POINTS, *_BATCH_POINTS)
# A cross of one point is read as a tuple of two, so that it is a tuple.
_READ = {
    cross: itemgetter(*(_ORDER.index(point) for point in points), *(() if len(points) > 1 else (0,)))
    for cross, points in CROSSES.items()
}
_OF_ROUNDS = {cross for cross, points in CROSSES.items() if set(points) & set(ROUND_POINTS)}
_named = lru_cache(maxsize=1 << 13)(name_of)


def bins(evidence: Evidence) -> frozenset[str]:
    """Return the names of the bins that a run hit; impossible ones among them, should it hit any."""
    if evidence.ranks:
        return frozenset().union(*(bins(replace(one, ranks=())) for one in evidence.ranks))
    samples = read_samples(evidence)
    requests, rounds = set(map(_OF_REQUEST, samples.requests)), set(map(_round_values, samples.rounds))
    return frozenset(_hit(requests, rounds))


def _round_values(round_: RoundSample) -> tuple[str | None, ...]:
    batch = _NO_BATCH if round_.batch is None else _OF_BATCH(round_.batch)
    return (*_OF_REQUEST(round_.request), *_OF_ROUND(round_), *batch)


def _hit(requests: Iterable[tuple[str | None, ...]], rounds: Iterable[tuple[str | None, ...]]) -> Iterator[str]:
    for cross, points in CROSSES.items():
        for values in set(map(_READ[cross], rounds if cross in _OF_ROUNDS else requests)):
            values = values[: len(points)]
            if None not in values:
                yield _named(cross, values)


@lru_cache(maxsize=64)
def _universe(drafts: frozenset[Algorithm]) -> tuple[str, ...]:
    found = []
    for cross, points in CROSSES.items():
        # No other rule can exclude a bin of these points.
        rules = [rule for rule in RULES if rule.where.keys() <= set(points)]
        for values in itertools.product(*(POINTS[point] for point in points)):
            pairs = dict(zip(points, values, strict=True))
            able = drafts.intersection(*(drafts_with(point, value) for point, value in pairs.items()))
            if able and not reason(pairs, rules):
                found.append(name_of(cross, values))
    return tuple(found)


def universe(drafts: Sequence[Algorithm]) -> tuple[str, ...]:
    """Return the bins that scenarios of these drafts can hit, in the order of CROSSES.

    Raises ValueError for no draft, and for an unknown one.
    """
    unknown = sorted(set(drafts) - set(ALGORITHMS))
    if unknown or not drafts:
        raise ValueError(f"invalid drafts {list(drafts)}: expected some of {', '.join(ALGORITHMS)}")
    return _universe(frozenset(drafts))


def holes(seen: Container[str], drafts: Sequence[Algorithm]) -> tuple[str, ...]:
    """Return the bins of `universe` that have not been seen."""
    return tuple(name for name in universe(drafts) if name not in seen)
