"""A timeline as a table: one group of rows a request, one row a phase, one column an engine step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from draftproof.properties.diagnosis.timeline import Mark, Timeline
from draftproof.properties.values.channel import PHASES

WIDEST = 120
"""Columns that a table has at most; those nearest to the first divergence stay."""
State = Literal["none", "same", "differ", "missing", "first"]
_SIGNS: dict[State, str] = {"none": "", "same": "·", "differ": "x", "missing": "-", "first": "◆"}


@dataclass(frozen=True)
class Cell:
    """`title` says in words what the sign cannot."""

    state: State
    title: str = ""

    @property
    def sign(self) -> str:
        return _SIGNS[self.state]


@dataclass(frozen=True)
class Line:
    phase: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class RequestRows:
    """A request: the round that it is in at each column ("": none), and its phases."""

    name: str
    rounds: tuple[str, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Grid:
    """`columns` are engine steps, then "never" for rounds that never ran; `left_out` is how many columns are not drawn.

    `parted` lists the marks where the sides differ, in the order of the timeline.
    """

    columns: tuple[str, ...]
    groups: tuple[RequestRows, ...]
    left_out: int
    parted: tuple[Mark, ...]
    run: str


_Column = tuple[int, int]  # (0, engine step), or (1, number) of a round that never ran


def grid(timeline: Timeline) -> Grid:
    """Return the table of a timeline; one cell holds one phase of a request at one step."""
    by_request: dict[int, list[Mark]] = defaultdict(list)
    for mark in timeline.marks:
        by_request[mark.request].append(mark)
    never = {request: _never(marks) for request, marks in by_request.items()}
    places = {column for mark in timeline.marks for column in _columns(mark, never[mark.request])}
    columns = _window(sorted(places), _home(timeline, never))
    # The engine's own row stands last.
    requests = sorted(by_request, key=lambda request: (request < 0, request))
    groups = [_group(request, by_request[request], columns, never[request], timeline) for request in requests]
    return Grid(
        columns=tuple(str(number) if not kind else "never" for kind, number in columns),
        groups=tuple(groups),
        left_out=len(places) - len(columns),
        parted=tuple(mark for mark in timeline.marks if mark.different),
        run=timeline.run,
    )


def _never(marks: list[Mark]) -> Mapping[int, int]:
    """Return round -> number, of rounds that never ran."""
    rounds = sorted({mark.round for mark in marks if mark.step < 0})
    return {round_: number for number, round_ in enumerate(rounds)}


def _columns(mark: Mark, never: Mapping[int, int]) -> list[_Column]:
    if mark.step < 0:
        return [(1, never[mark.round])]
    return [(0, step) for step in range(mark.step, max(mark.step, mark.last_step) + 1)]


def _home(timeline: Timeline, never: Mapping[int, Mapping[int, int]]) -> _Column | None:
    first = timeline.first
    marks = [mark for mark in timeline.marks if _is_first(mark, timeline)]
    return _columns(marks[0], never[first.request])[0] if marks else None


def _window(columns: list[_Column], home: _Column | None) -> list[_Column]:
    at = columns.index(home) if home in columns else 0
    start = max(0, min(at - WIDEST // 2, len(columns) - WIDEST))
    return columns[start : start + WIDEST]


def _group(
    request: int, marks: list[Mark], columns: list[_Column], never: Mapping[int, int], timeline: Timeline
) -> RequestRows:
    found: dict[tuple[str, _Column], list[Mark]] = defaultdict(list)
    rounds: dict[_Column, list[int]] = defaultdict(list)
    for mark in marks:
        for column in _columns(mark, never):
            found[mark.phase, column].append(mark)
            rounds[column].append(mark.round)
    phases = sorted({mark.phase for mark in marks}, key=lambda phase: (*PHASES, phase).index(phase))
    lines = [
        Line(phase, tuple(_cell(found.get((phase, column), []), timeline) for column in columns)) for phase in phases
    ]
    shown = tuple(_rounds(rounds.get(column, [])) for column in columns) if request >= 0 else ("",) * len(columns)
    return RequestRows(f"request {request}" if request >= 0 else "engine", shown, tuple(lines))


def _rounds(numbers: list[int]) -> str:
    return "+".join("P" if number == 0 else str(number) for number in sorted(set(numbers)))


def _cell(marks: list[Mark], timeline: Timeline) -> Cell:
    """Return the worst of several rounds in one step."""
    cells = [_of(mark, timeline) for mark in marks]
    order: tuple[State, ...] = ("first", "differ", "missing", "same")
    return min(cells, key=lambda cell: order.index(cell.state), default=Cell("none"))


def _of(mark: Mark, timeline: Timeline) -> Cell:
    if not mark.different:
        return Cell("same")
    total = mark.same + mark.different
    where = f"{mark.channel}{f', {mark.place}' if mark.place else ''}"
    title = f"{where}: expected {mark.expected}, got {mark.got}; {mark.different} of {total} differ"
    if _is_first(mark, timeline):
        return Cell("first", title)
    return Cell("missing" if mark.missing == total else "differ", title)


def _is_first(mark: Mark, timeline: Timeline) -> bool:
    first = timeline.first
    return (mark.request, mark.round, mark.phase) == (first.request, first.round, first.phase)
