"""A list of rows in which points meet: every allowed pair soon, and triples as the list goes on.

This is AETG's greedy choice (Cohen, Dalal, Fredman, Patton 1997): of a few rows that are put together at random, point
by point for what has not met yet, the one is taken that brings most for its cost. Where a scenario lacks a point that
its row asked for, that has met nothing: what was read off the scenario counts.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache, partial, reduce
from itertools import combinations

from draftproof.properties.choose import SeededChoose
from draftproof.properties.features import FEATURES_BY_NAME
from draftproof.properties.lib.base import Value
from draftproof.properties.strategies.rows import DIMENSIONS, POINTS, PROMISED, Point, allowed, needed_by, points_of
from draftproof.properties.strategies.shapes import SIZES
from draftproof.properties.values.drafts import DRAFT_KINDS_BY_NAME, algorithm
from draftproof.properties.values.scenario import Scenario

_CANDIDATES = 4
_FEATURES = (3, 6, 8, 10, 12, 25, 25)
"""How many features a row takes at most: some few, so that a failure has few causes, and some all that go together."""
_QUANTITIES = 3
_feature = partial(Point, "feature")
_SECOND_RUN = 1.3
_COST = {
    **{Point("size", one.name): one.cost for one in SIZES},
    **{Point("variant", name): _SECOND_RUN for name in DIMENSIONS["variant"] if name != "none"},
    Point("steps", "many"): 1.5,
    _feature("data-parallel"): 1.3,
    _feature("tensor-parallel"): 2.0,
}
"""What the points of a row make of its cost, as measured: other points hardly change it."""
_ORDER = {point: place for place, point in enumerate(POINTS)}
_WEIGHT = {Point(dimension, value): weight for dimension, of in DIMENSIONS.items() for value, weight in of.items()}
_LOOKUPS = [name for name, kind in DRAFT_KINDS_BY_NAME.items() if kind.proposes == "lookup"]
_ALONE = Point("variant", "alone")
LEADS: dict[tuple[Point, ...], float] = {
    (_ALONE, _feature("prefix-cache")): 0.05,
    (_ALONE, _feature("preemption")): 0.05,
    (_feature("preemption"), _feature("stop-sequences")): 0.05,
    (_feature("preemption"), _feature("data-parallel")): 0.05,
    (_feature("prefix-cache"), _feature("aborts")): 0.05,
    (_feature("stop-sequences"), _feature("min-tokens")): 0.05,
    (_feature("overlap"), _feature("aborts")): 0.05,
    (_feature("trees"), _feature("sampling")): 0.12,
    (_feature("trees"), _feature("mixed"), _feature("data-parallel")): 0.01,
    **{(Point("draft", name), _feature("adaptive-steps")): 0.05 for name in _LOOKUPS},
}
"""Points beside each other on which facts depend that contracts ask for, and in how many of all scenarios they come.

A row begins with those that are furthest behind that.
"""


class Met(Value, frozen=True):
    """How many of the allowed pairs and triples of promised points have met, and how many there are."""

    pairs: int
    all_pairs: int
    triples: int
    all_triples: int


def met_by(scenarios: Sequence[Scenario]) -> Met | None:
    """Return what has met in scenarios of probes, of all that is allowed with their drafts; None without any."""
    if not scenarios:
        return None
    array = Array("", tuple(dict.fromkeys(algorithm(one.draft) for one in scenarios)))
    for one in scenarios:
        array.meet(points_of(one))
    return array.met


@lru_cache(maxsize=1)
def _beside() -> tuple[int, ...]:
    """Return for each point, by its place in POINTS, the bits of those that are allowed beside it."""
    return tuple(_bits(other for other in POINTS if allowed(point, other)) for point in POINTS)


@lru_cache(maxsize=1)
def _with_needed() -> tuple[int, ...]:
    """Return for each point the bits of it and of those that it needs."""
    return tuple(_bits({point, *needed_by(point)}) for point in POINTS)


@lru_cache(maxsize=1)
def _against() -> tuple[int, ...]:
    """Return for each point the bits of those that are not allowed beside it, or beside one that it needs."""
    others = [~(bits | 1 << place) for place, bits in enumerate(_beside())]
    return tuple(_union(others[one] for one in _places(own)) for own in _with_needed())


def _bits(points: Iterable[Point]) -> int:
    return sum(1 << _ORDER[point] for point in points)


def _union(some: Iterable[int]) -> int:
    return reduce(operator.or_, some, 0)


def _places(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


class Array:
    """The rows of one list. `drafts` take turns; only points that go with one of them count.

    Every row begins with `features`, if they go together with its draft.
    """

    def __init__(
        self, name: str, drafts: Sequence[str], without: frozenset[Point] = frozenset(), features: Sequence[str] = ()
    ) -> None:
        """Take the seed as a name, and points that are to come up in no row."""
        self._name, self._choose = name, SeededChoose(name)
        self._features = _bits(point for point in map(_feature, features) if point in _ORDER)
        beside, places = _beside(), [_ORDER[Point("draft", draft)] for draft in drafts]
        self._drafts = {draft: beside[draft] | 1 << draft for draft in places}
        self._usable = _union(self._drafts.values()) & ~_bits(without)
        self._pairs = [beside[place] & self._usable if self._usable >> place & 1 else 0 for place in range(len(POINTS))]
        self._promised = _bits(PROMISED) & self._usable
        self._triples: dict[tuple[int, int], int] = {}
        for one in _places(self._promised):
            for other in _places(self._pairs[one] & self._promised & -(1 << one + 1)):
                both = self._pairs[one] & self._pairs[other] & self._promised
                # A row has one draft.
                self._triples[one, other] = both & _union(
                    own for own in self._drafts.values() if own >> one & own >> other & 1
                )
        self._all = self._left()
        self._number, self._has_open_pairs = 0, True
        self._came = dict.fromkeys(LEADS, 0)

    @property
    def met(self) -> Met:
        """How much has met by now."""
        pairs, triples = self._left()
        all_pairs, all_triples = self._all
        return Met(all_pairs - pairs, all_pairs, all_triples - triples, all_triples)

    def _left(self) -> tuple[int, int]:
        """Return how many promised pairs and triples have not met; each is kept once for each of its points."""
        pairs = sum((self._pairs[place] & self._promised).bit_count() for place in _places(self._promised))
        return pairs // 2, sum(bits.bit_count() for bits in self._triples.values()) // 3

    @cached_property
    def _dimensions(self) -> list[list[int]]:
        """The places of points by dimension; each feature is one."""
        found: dict[str, list[int]] = {}
        for place in _places(self._usable):
            point = POINTS[place]
            if point.dimension not in ("draft", "quantity"):
                name = point.value if point.dimension == "feature" else point.dimension
                found.setdefault(name, []).append(place)
        return list(found.values())

    def missing(self) -> list[tuple[Point, Point]]:
        """Return the promised pairs that have not met."""
        return [
            (POINTS[one], POINTS[other])
            for one in _places(self._promised)
            for other in _places(self._pairs[one] & self._promised & -(1 << one + 1))
        ]

    def next(self) -> frozenset[Point]:
        """Return the points of the next row."""
        draft = list(self._drafts)[self._number % len(self._drafts)]
        begun = self._lead(draft, self._begun(1 << draft, self._features) or 1 << draft)
        self._number += 1
        candidates = [self._candidate(draft, begun) for _ in range(_CANDIDATES)]
        best = max(candidates, key=self._worth)
        return frozenset(POINTS[place] for place in _places(best))

    def _is_behind(self, draft: int) -> bool:
        """Return whether of several drafts this has the most pairs left that meet beside it and beside no other."""
        left = {one: sum(map(int.bit_count, map(operator.and_, self._pairs, own))) for one, own in self._own.items()}
        return min(left.values()) < max(left.values()) == left[draft]

    @cached_property
    def _own(self) -> dict[int, list[int]]:
        """The promised points for each draft and each point that go with both, and of which no other draft has both."""
        found, beside = dict[int, list[int]](), {draft: own & self._promised for draft, own in self._drafts.items()}
        for draft, own in beside.items():
            others = [bits for other, bits in beside.items() if other != draft]
            beyond = [_union(bits for bits in others if bits >> place & 1) for place in range(len(POINTS))]
            found[draft] = [own & ~bits if own >> place & 1 else 0 for place, bits in enumerate(beyond)]
        return found

    def meet(self, points: Sequence[Point]) -> None:
        """Take in what a scenario has."""
        bits = _bits(points)
        for lead in LEADS:
            self._came[lead] += not _bits(lead) & ~bits
        for place in _places(bits):
            self._pairs[place] &= ~bits
        self._has_open_pairs = any(self._pairs[place] & self._promised for place in _places(self._promised))
        for pair in combinations(_places(bits & self._promised), 2):
            if pair in self._triples:
                self._triples[pair] &= ~bits

    def new_pairs(self, points: Sequence[Point]) -> int:
        """Return how many promised pairs a scenario with these points would be the first to have."""
        bits = _bits(points) & self._promised
        return sum((self._pairs[place] & bits).bit_count() for place in _places(bits)) // 2

    def _worth(self, bits: int) -> tuple[float, float]:
        """Return how many pairs a row would meet, and how many triples, for its cost."""
        places = list(_places(bits))
        cost = 1.0
        for place in places:
            cost *= _COST.get(POINTS[place], 1.0)
        pairs = sum(self._new(bits, place) for place in places)
        triples = sum((self._triples.get(pair, 0) & bits).bit_count() for pair in combinations(places, 2))
        return (pairs / cost, triples / cost)

    def _lead(self, draft: int, begun: int) -> int:
        """Return the row as it begins: with what all have, and the lead furthest behind; a draft behind has its own."""
        behind = {_bits(lead): share * self._number - self._came[lead] for lead, share in LEADS.items()}
        others = not self._is_behind(draft)
        leads = [lead for lead in behind if behind[lead] > 0 and (others or lead >> draft & 1)]
        return self._begun(begun, max(filter(partial(self._begun, begun), leads), key=behind.__getitem__, default=0))

    def _begun(self, bits: int, more: int) -> int:
        """Return the row with more points, and with those that they need; nothing if they do not all go with it."""
        for place in _places(more & ~bits):
            if not self._fits(bits, place):
                return 0
            bits = self._with(bits, place)
        return bits

    def _candidate(self, draft: int, begun: int) -> int:
        """Put a row together: its lead, a pair that has not met, and then a point of each dimension in any order."""
        choose = self._choose
        bits = self._with_new(draft, begun)
        most = choose.one_of(_FEATURES)
        features = sum(POINTS[place].dimension == "feature" for place in _places(bits))
        for places in choose.shuffled(self._dimensions):
            free = [place for place in places if self._fits(bits, place)]
            if not free or any(bits >> place & 1 for place in places):
                continue
            if POINTS[free[0]].dimension != "feature":
                bits = self._with(bits, self._drawn(bits, free))
            elif features < most and choose.integer(0, 99) < 100 * self._share(bits, free[0]):
                bits = self._with(bits, free[0])
                features += 1
        return self._with_quantities(bits)

    def _with_new(self, draft: int, bits: int) -> int:
        """Add a pair that has not met and goes with this draft, so that what is rare comes up as well."""
        left = [
            one for one in _places(_beside()[draft] & self._usable) if self._open(draft, one) and self._fits(bits, one)
        ]
        if not left:
            return bits if self._has_open_pairs else self._with_triple(bits)
        first = self._choose.one_of(left)
        bits = self._with(bits, first)
        others = [place for place in _places(self._open(draft, first)) if self._fits(bits, place)]
        return self._with(bits, self._choose.one_of(others)) if others else bits

    def _with_triple(self, bits: int) -> int:
        """Add a triple that has not met, if there is one that goes with the row."""
        begun = ((pair, self._begun(bits, 1 << pair[0] | 1 << pair[1])) for pair, left in self._triples.items() if left)
        left = [one for one in begun if one[1]]
        if not left:
            return bits
        pair, made = self._choose.one_of(left)
        whole = [row for third in _places(self._triples[pair]) if (row := self._begun(made, 1 << third))]
        return self._choose.one_of(whole) if whole else made

    def _open(self, draft: int, place: int) -> int:
        """Return the points beside one and a draft that it has not met."""
        return self._pairs[place] & self._drafts[draft] & self._promised if self._promised >> place & 1 else 0

    def _with(self, bits: int, place: int) -> int:
        """Return the row with a point, and with those that it needs."""
        return bits | _with_needed()[place]

    def _fits(self, bits: int, place: int) -> bool:
        """Return whether a point, and what it needs, is allowed beside all of a row."""
        return not (_with_needed()[place] & ~self._usable or bits & _against()[place])

    def _gain(self, bits: int, place: int) -> int:
        """Return how many pairs a point would meet; when all have met, how many triples."""
        if self._has_open_pairs:
            return self._new(bits, place)
        pairs = ((min(place, other), max(place, other)) for other in _places(bits))
        return sum((self._triples.get(pair, 0) & bits).bit_count() for pair in pairs)

    def _new(self, bits: int, place: int) -> int:
        """Return how many pairs a point would meet; what no other draft can meet counts three times."""
        left, own = self._pairs[place] & bits, next(self._own[draft] for draft in self._own if bits >> draft & 1)
        return left.bit_count() + 2 * (left & own[place]).bit_count()

    def _share(self, bits: int, place: int) -> float:
        """Return how often a feature is taken that is allowed beside a row: oftener if it meets something new."""
        weight = FEATURES_BY_NAME[POINTS[place].value].weight
        return (1 + weight) / 2 if self._gain(bits, place) else weight

    def _drawn(self, bits: int, free: Sequence[int]) -> int:
        """Draw a value, by its weight and by how much it meets that is new."""
        gains = [self._gain(bits, place) for place in free]
        base = int(not any(gains))
        weights = [(base + gain) * _WEIGHT.get(POINTS[place], 1.0) for gain, place in zip(gains, free, strict=True)]
        at = self._choose.integer(0, 9999) / 10_000 * sum(weights)
        for place, weight in zip(free, weights, strict=True):
            at -= weight
            if at < 0:
                return place
        return free[-1]

    def _with_quantities(self, bits: int) -> int:
        """Return the row with a few quantities, those that meet most first."""
        free = [one for one in _places(self._usable) if POINTS[one].dimension == "quantity" and self._fits(bits, one)]
        free = self._choose.shuffled([one for one in free if not _with_needed()[one] & ~(bits | 1 << one)])
        free.sort(key=lambda place: -(self._pairs[place] & bits).bit_count())
        for place in free[: self._choose.integer(1, _QUANTITIES)]:
            bits |= 1 << place
        return bits
