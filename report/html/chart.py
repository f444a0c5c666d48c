"""A line over time as points of an SVG: the sums are made here, the drawing is a template's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from draftproof.properties.lib.durations import show_duration
from draftproof.report.numbers import count

MOST_POINTS = 400
_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)


@dataclass(frozen=True)
class Tick:
    """A place on an axis, and what is written there."""

    at: float
    text: str


@dataclass(frozen=True)
class Chart:
    """`points` and `area` are polygons' coordinates; `limit` is the height of a line never to be passed (None: none).

    The line lies between `left` and `right`, `top` and `bottom`. `samples` is the same in numbers: (time, value).
    """

    width: ClassVar[int] = 720
    height: ClassVar[int] = 220
    left: ClassVar[int] = 52
    right: ClassVar[int] = 708
    top: ClassVar[int] = 10
    bottom: ClassVar[int] = 194
    points: str
    area: str
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    limit: float | None
    events: tuple[Tick, ...]
    samples: tuple[tuple[str, str], ...]


def steps(times: Sequence[float]) -> list[tuple[float, float]]:
    """Return (time, count so far) of things that each happened once."""
    return [(at, number) for number, at in enumerate(sorted(times), start=1)]


def chart(
    values: Sequence[tuple[float, float]],
    *,
    until: float,
    limit: float | None = None,
    events: Sequence[tuple[float, str]] = (),
    stepped: bool = True,
) -> Chart | None:
    """Return a line through (seconds, value) from 0 to `until` seconds; None if there is nothing to draw.

    `stepped`: a value holds until the next one. `limit` is drawn as a line of its own.
    """
    known = [pair for pair in values if math.isfinite(pair[0]) and math.isfinite(pair[1])]
    if not known:
        return None
    end = max(until, known[-1][0], 1e-3)
    top = max(max(value for _, value in known), limit or 0.0, 1e-9) * 1.04
    across = lambda at: round(Chart.left + (Chart.right - Chart.left) * at / end, 1)  # noqa: E731
    up = lambda value: round(Chart.bottom - (Chart.bottom - Chart.top) * value / top, 1)  # noqa: E731
    line = _line(_thinned(known), end, stepped)
    drawn = [(across(at), up(value)) for at, value in line]
    points = " ".join(f"{x:g},{y:g}" for x, y in drawn)
    return Chart(
        points=points,
        area=f"{drawn[0][0]:g},{Chart.bottom} {points} {drawn[-1][0]:g},{Chart.bottom}",
        across=tuple(Tick(across(at), show_duration(at) if at else "0") for at in _times(end)),
        up=tuple(Tick(up(value), count(value)) for value in _values(top)),
        limit=None if limit is None else up(limit),
        events=tuple(Tick(across(min(at, end)), text) for at, text in events),
        samples=_samples(known, end),
    )


def _thinned(values: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Evenly chosen, with the last one."""
    if len(values) <= MOST_POINTS:
        return list(values)
    pick = [values[round(at * (len(values) - 1) / (MOST_POINTS - 1))] for at in range(MOST_POINTS)]
    return list(dict.fromkeys(pick))


def _line(values: list[tuple[float, float]], end: float, stepped: bool) -> list[tuple[float, float]]:
    if not stepped:
        return values
    line, before = [], 0.0
    for at, value in values:
        line += [(at, before), (at, value)]
        before = value
    return [(0.0, 0.0), *line, (end, before)]


def _times(end: float) -> list[float]:
    """Round times, at most eight."""
    step: float = next((one for one in _TIMES if end / one <= 7), math.ceil(end / 7 / 86400) * 86400)
    if end < 7:
        step = _round(end / 5)
    return [number * step for number in range(int(end / step) + 1)]


def _values(top: float) -> list[float]:
    step = _round(top / 4)
    return [number * step for number in range(int(top / step) + 1)]


def _round(rough: float) -> float:
    """1, 2 or 5 times a power of ten, near to it."""
    power = 10.0 ** math.floor(math.log10(rough))
    return min((1, 2, 5, 10), key=lambda part: abs(part * power - rough)) * power


def _samples(values: Sequence[tuple[float, float]], end: float) -> tuple[tuple[str, str], ...]:
    """Return the value at each tenth of the time."""
    chosen = []
    for tenth in range(1, 11):
        at = end * tenth / 10
        before = [value for when, value in values if when <= at * (1 + 1e-9)]
        chosen.append((show_duration(at), count(before[-1]) if before else "0"))
    return tuple(chosen)
