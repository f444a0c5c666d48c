"""Which rows and launches a subject ran, when, and together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import astuple

from draftproof.properties.values.observed import BatchRow, LaunchKind, LaunchRecord
from draftproof.properties.values.trace import Trace


class Row(NamedTuple):
    """One observation of `round.rows`: a BatchRow with the request, its round and its prefill chunk."""

    request: int
    round: int
    chunk: int
    place: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs of a row
    phase: int
    size: int
    step: int


class StepLaunch(NamedTuple):
    """One observation of `graph.replay`: a LaunchRecord with the engine step and its number in it."""

    step: int
    number: int
    kind: LaunchKind
    size: int
    rows: int
    replays: int
    width: int
    layer: int


@dataclass(frozen=True)
class ObservedSchedule:
    """The batches and launches of one trace."""

    trace: Trace

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """By engine step, phase, place in the batch."""
        reported = self.trace.typed("round.rows", BatchRow).items()
        rows = (Row(key.request, key.round, key.step, *astuple(row)) for key, row in reported)
        return tuple(sorted(rows, key=lambda row: (row.step, row.phase, row.place)))

    @cached_property
    def batches(self) -> Mapping[tuple[int, int], tuple[Row, ...]]:
        """(engine step, phase) -> rows."""
        batches: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for row in self.rows:
            batches[row.step, row.phase].append(row)
        return {place: tuple(rows) for place, rows in batches.items()}

    @cached_property
    def decode_steps(self) -> Mapping[tuple[int, int], int]:
        """(request, round) -> engine step, of decode rounds."""
        return {(row.request, row.round): row.step for row in self.rows if row.phase}

    @cached_property
    def launches(self) -> tuple[StepLaunch, ...]:
        """In the order in which they ran."""
        reported = self.trace.typed("graph.replay", LaunchRecord).items()
        return tuple(sorted(StepLaunch(key.round, key.step, *astuple(launch)) for key, launch in reported))

    @cached_property
    def last_step(self) -> int:
        """The last engine step in which something ran; -1 if nothing did."""
        return max((row.step for row in self.rows), default=-1)

    @cached_property
    def spans(self) -> Mapping[int, tuple[int, int]]:
        """request -> first and last engine step in which it ran."""
        spans: dict[int, tuple[int, int]] = {}
        for row in self.rows:
            first, last = spans.get(row.request, (row.step, row.step))
            spans[row.request] = (min(first, row.step), max(last, row.step))
        return spans

    @cached_property
    def chunk_starts(self) -> Mapping[tuple[int, int], int]:
        """(request, chunk) -> position of the chunk's first token."""
        starts: dict[tuple[int, int], int] = {}
        done: dict[int, int] = defaultdict(int)
        for row in sorted((row for row in self.rows if not row.phase), key=lambda row: (row.request, row.chunk)):
            starts[row.request, row.chunk] = done[row.request]
            done[row.request] += row.count
        return starts

    def is_last(self, row: Row) -> bool:
        """Return whether a row is the last of its request."""
        return self.spans[row.request][1] == row.step

    def ending(self, step: int, phase: int) -> tuple[Row, ...]:
        """Return the rows of a batch whose requests end with it."""
        return tuple(row for row in self.batches.get((step, phase), ()) if self.is_last(row))

    def phase(self, launch: StepLaunch) -> int:
        """Return 1 for a launch of the decode batch: one after a verify of its step."""
        verified = (one.number for one in self.launches if (one.step, one.kind) == (launch.step, LaunchKind.VERIFY))
        return int(launch.number > min(verified, default=launch.number))
