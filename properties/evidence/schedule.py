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
    def steps(self) -> Mapping[tuple[int, int], int]:
        """(request, round) -> the engine step in which the round began."""
        steps: dict[tuple[int, int], int] = {}
        for row in reversed(self.rows):
            steps[row.request, row.round] = row.step
        return steps

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
    def chunk_starts(self) -> Mapping[tuple[int, int, int], int]:
        """(request, round, chunk) -> position of the chunk's first token."""
        starts: dict[tuple[int, int, int], int] = {}
        done = dict(self.cached)
        chunks = (row for row in self.rows if not row.phase)
        for row in sorted(chunks, key=lambda row: (row.request, row.round, row.chunk)):
            place = (row.request, row.round)
            starts[*place, row.chunk] = done.get(place, 0)
            done[place] = done.get(place, 0) + row.count
        return starts

    @cached_property
    def attempt_spans(self) -> Mapping[tuple[int, int], tuple[int, int]]:
        """(request, attempt) -> first and last engine step in which it ran."""
        spans: dict[tuple[int, int], tuple[int, int]] = {}
        for row in self.rows:
            place = (row.request, self.attempt(row))
            first, last = spans.get(place, (row.step, row.step))
            spans[place] = (min(first, row.step), max(last, row.step))
        return spans

    def attempt(self, row: Row) -> int:
        """Return how often a row's request had been preempted before."""
        return self.attempts.get((row.request, row.round), 0)

    def running(self, step: int) -> frozenset[int]:
        """Return the requests that hold memory while an engine step runs."""
        return frozenset(request for (request, _), (first, last) in self.attempt_spans.items() if first <= step <= last)

    def paused(self, step: int) -> frozenset[int]:
        """Return the requests that are preempted after an engine step, or may be, and run again later."""
        return frozenset(
            request
            for (request, attempt), (_, last) in self.attempt_spans.items()
            if (request, attempt + 1) in self.attempt_spans
            and last <= step < self.attempt_spans[request, attempt + 1][0]
        )

    @cached_property
    def cached(self) -> Mapping[tuple[int, int], int]:
        """(request, round) -> tokens that a prefix cache served."""
        return {key[:2]: count for key, count in self.trace.typed("round.cached", int).items()}

    @cached_property
    def attempts(self) -> Mapping[tuple[int, int], int]:
        """(request, round) -> how often the request had been preempted before the round ended."""
        return {key[:2]: count for key, count in self.trace.typed("round.attempt", int).items()}

    @cached_property
    def resumed(self) -> frozenset[tuple[int, int]]:
        """The decode rounds (request, round) that ran a request's tokens again, for its pages had been taken."""
        before = self.attempts.get
        return frozenset(
            (request, number)
            for (request, number), count in self.attempts.items()
            if number and count > before((request, number - 1), 0)
        )

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
