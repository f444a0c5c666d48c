"""Functional coverage as tables of coloured cells: each coverpoint a line, each cross a heat map or several."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from draftproof.properties.coverage import CROSSES, POINTS, holes, impossible, split, universe
from draftproof.properties.coverage.points import name_of
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm
from draftproof.report.numbers import short

State = Literal["hit", "hole", "impossible", "outside"]
LEVELS = 5


@dataclass(frozen=True)
class Square:
    """One bin. `level` 1 .. 5 grows with the logarithm of its hits; `title` says why where nothing was hit."""

    state: State
    text: str
    level: int = 0
    title: str = ""


@dataclass(frozen=True)
class Map:
    """Rows and columns of one heat map; `caption` names the value of the third point, if the cross has one."""

    caption: str
    across: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Square, ...]], ...]


@dataclass(frozen=True)
class Cross:
    """A cross of two or three points; `down` and `across` name those of its maps."""

    name: str
    down: str
    across: str
    maps: tuple[Map, ...]
    hit: int
    possible: int


@dataclass(frozen=True)
class HeatPoint:
    """A coverpoint by itself: a square for each value."""

    name: str
    squares: tuple[tuple[str, Square], ...]
    hit: int
    possible: int


@dataclass(frozen=True)
class Coverage:
    """Bins of a campaign.

    `covered` can be hit and were; `holes`, by cross, were not; `strangers` are in the database but not declared.
    """

    covered: frozenset[str]
    possible: int
    points: tuple[HeatPoint, ...]
    crosses: tuple[Cross, ...]
    holes: tuple[tuple[str, tuple[str, ...]], ...]
    strangers: tuple[str, ...]

    @property
    def hit(self) -> int:
        """How many are covered."""
        return len(self.covered)


@dataclass(frozen=True)
class _Known:
    """What squares are drawn from. `top` is the most hits of any bin, `counts` are (hit, possible) bins by cross."""

    hits: Mapping[str, int]
    possible: frozenset[str]
    top: int
    counts: Mapping[str, tuple[int, int]]

    def square(self, cross: str, values: tuple[str, ...]) -> Square:
        name = name_of(cross, values)
        if hits := self.hits.get(name, 0):
            return Square("hit", short(hits), _level(hits, self.top))
        if name in self.possible:
            return Square("hole", "○", title=f"hole: {name}")
        why = impossible(name)
        if why:
            return Square("impossible", "", title=f"impossible: {why}")
        return Square("outside", "", title="not of these drafts")


def covered(bins: Iterable[Mapping[str, Any]], drafts: Iterable[str]) -> Coverage:
    """Return the coverage by rows of the table `bins`, of all that scenarios of these drafts can reach."""
    wanted: tuple[Algorithm, ...] = tuple(name for name in ALGORITHMS if name in set(drafts)) or ALGORITHMS
    hits = {str(row["name"]): int(row["hits"]) for row in bins}
    possible = frozenset(universe(wanted))
    strangers = tuple(sorted(name for name in hits if not _declared(name)))
    missed = defaultdict(list)
    for name in holes(hits, wanted):
        cross, _, values = name.partition(": ")
        missed[cross].append(values)
    known = _Known(hits, possible, max(hits.values(), default=1), _counts(hits, possible))
    points = [_point(name, known) for name in CROSSES if len(CROSSES[name]) == 1]
    crosses = [_cross(name, known) for name in CROSSES if len(CROSSES[name]) > 1]
    return Coverage(
        covered=possible & hits.keys(),
        possible=len(possible),
        points=tuple(point for point in points if point.possible),
        crosses=tuple(cross for cross in crosses if cross.possible),
        holes=tuple((cross, tuple(values)) for cross, values in missed.items()),
        strangers=strangers,
    )


def _counts(hits: Mapping[str, int], possible: frozenset[str]) -> Mapping[str, tuple[int, int]]:
    able = Counter(name.partition(": ")[0] for name in possible)
    seen = Counter(name.partition(": ")[0] for name in possible & hits.keys())
    return {cross: (seen[cross], able[cross]) for cross in CROSSES}


def _declared(name: str) -> bool:
    try:
        split(name)
    except ValueError:
        return False
    return True


def _point(name: str, known: _Known) -> HeatPoint:
    squares = tuple((value, known.square(name, (value,))) for value in POINTS[CROSSES[name][0]])
    return HeatPoint(name, squares, *known.counts[name])


def _cross(name: str, known: _Known) -> Cross:
    """Draw a cross: the longer of its first two points goes down; a third makes a map for each of its values."""
    first, second, *more = CROSSES[name]
    down, across = (second, first) if len(POINTS[second]) > len(POINTS[first]) else (first, second)
    thirds = (dict(zip(more, values, strict=True)) for values in product(*(POINTS[point] for point in more)))
    made = [_map(name, down, across, third, known) for third in thirds]
    return Cross(name, down, across, tuple(one for one in made if one.lines), *known.counts[name])


def _map(name: str, down: str, across: str, third: Mapping[str, str], known: _Known) -> Map:
    def square(row: str, column: str) -> Square:
        values = {down: row, across: column, **third}
        return known.square(name, tuple(values[point] for point in CROSSES[name]))

    every = ((row, [square(row, column) for column in POINTS[across]]) for row in POINTS[down])
    lines = [(row, squares) for row, squares in every if _within(squares)]
    columns = [at for at in range(len(POINTS[across])) if _within(squares[at] for _, squares in lines)]
    return Map(
        caption=", ".join(f"{point} = {value}" for point, value in third.items()),
        across=tuple(POINTS[across][at] for at in columns),
        lines=tuple((row, tuple(squares[at] for at in columns)) for row, squares in lines),
    )


def _within(squares: Iterable[Square]) -> bool:
    """Whether any of them has to do with these drafts."""
    return any(square.state != "outside" for square in squares)


def _level(hits: int, top: int) -> int:
    if top <= 1:
        return LEVELS
    return 1 + round((LEVELS - 1) * math.log(hits) / math.log(top))
