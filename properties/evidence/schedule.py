"""Which rows and launches a subject ran, when, and together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import astuple

from draftproof.properties.values.delays import Delay, lag
from draftproof.properties.values.observed import BatchRow, LaunchKind, LaunchRecord, PoolReport
from draftproof.properties.values.trace import Trace


class Row(NamedTuple):
    """One observation of `round.rows`: a BatchRow with the request, its round and its prefill chunk."""

    request: int
    round: int
    chunk: int
    place: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which a row does not need
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
    tokens: int = 0


class Abort(NamedTuple):
    """A request that was aborted when this engine step began, and how many of its rounds had ended by then.

    The prompt's round counts.
    """

    step: int
    ended: int


@dataclass(frozen=True)
class ObservedSchedule:
    """The batches and launches of one trace. `aborts`, by request, has no request that ended before its abort.

    A rank goes on until step `until`, in which another rank has something to run. With an `overlap` results come later
    than their step, but for those `waited` for, and a request holds its memory until the results of its last row are
    there. With PD disaggregation
    (`is_disaggregated`) what a request runs on its prefill engine counts as a first attempt, and what it runs on its
    decode engine as a second.
    """

    trace: Trace
    aborts: Mapping[int, Abort] = field(default_factory=dict)
    until: int = -1
    is_disaggregated: bool = False
    overlap: tuple[Delay, ...] = ()
    waited: frozenset[int] = frozenset()

    def lag(self, step: int) -> int:
        """Return how many steps the results of an engine step come later than it."""
        return 0 if step in self.waited else lag(self.overlap, step)

    def done(self, row: Row) -> int:
        """Return the engine step in which the host has the results of a row."""
        return row.step + self.lag(row.step)

    def in_flight_before(self, request: int, number: int) -> Row | None:
        """Return the last row of the round before a decode round, if its results came after this one was planned."""
        if not self.overlap:
            return None
        before, step = self._last_rows.get((request, number - 1)), self.decode_steps.get((request, number), -1)
        return before if before is not None and self.done(before) >= step else None

    @cached_property
    def _last_rows(self) -> Mapping[tuple[int, int], Row]:
        """(request, round) -> its last row."""
        return {(row.request, row.round): row for row in self.rows}

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """By engine step, phase, place in the batch."""
        reported = self.trace.typed("round.rows", BatchRow).items()
        rows = (Row(key.request, key.round, key.step, *astuple(row)) for key, row in reported)
        return tuple(sorted(rows, key=lambda row: (row.step, row.phase, row.place)))

    @cached_property
    def rows_done(self) -> Mapping[int, list[Row]]:
        """Engine step -> the rows whose results the host has in it."""
        done: dict[int, list[Row]] = defaultdict(list)
        for row in self.rows:
            done[self.done(row)].append(row)
        return done

    @cached_property
    def rows_by_request(self) -> Mapping[int, list[Row]]:
        """By engine step."""
        rows: dict[int, list[Row]] = defaultdict(list)
        for row in self.rows:
            rows[row.request].append(row)
        return rows

    @cached_property
    def chunked(self) -> Mapping[tuple[int, int], tuple[int, int]]:
        """(request, round) of text that runs in chunks -> the steps of the first and the last of them.

        The last is behind all others where an abort ended it before.
        """
        spans: dict[tuple[int, int], tuple[int, int]] = {}
        for row in self.rows:
            if not row.phase:
                last = self.last_step + 1 if self.is_unfinished(row) else row.step
                first, before = spans.get((row.request, row.round), (row.step, last))
                spans[row.request, row.round] = (first, max(before, last))
        return spans

    @cached_property
    def batches(self) -> Mapping[tuple[int, int], tuple[Row, ...]]:
        """(engine step, phase) -> rows."""
        batches: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for row in self.rows:
            batches[row.step, row.phase].append(row)
        return {place: tuple(rows) for place, rows in batches.items()}

    def rows_at(self, step: int) -> tuple[Row, ...]:
        """Return the rows of an engine step, those of prompts first."""
        return (*self.batches.get((step, 0), ()), *self.batches.get((step, 1), ()))

    def packed_at(self, step: int) -> tuple[Row, ...]:
        """Return the rows that a packed launch of an engine step has: of two engines the chunks alone (S-DISAGG-9)."""
        return self.batches.get((step, 0), ()) if self.is_disaggregated else self.rows_at(step)

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
    def ends(self) -> Mapping[tuple[int, int], int]:
        """(request, round) -> the engine step in which the round ended, as far as it ran."""
        return {(row.request, row.round): row.step for row in self.rows}

    @cached_property
    def launches(self) -> tuple[StepLaunch, ...]:
        """In the order in which they ran."""
        reported = self.trace.typed("graph.replay", LaunchRecord).items()
        return tuple(sorted(StepLaunch(key.round, key.step, *astuple(launch)) for key, launch in reported))

    @cached_property
    def last_step(self) -> int:
        """The last engine step in which something ran, had run, or was aborted; -1 if there is none."""
        return max((*(self.done(row) for row in self.rows), *(one.step for one in self.aborts.values()), self.until))

    @cached_property
    def spans(self) -> Mapping[int, tuple[int, int]]:
        """Return the first and last engine step in which each request ran, or held memory.

        The last step of an aborted request is the one before its abort.
        """
        spans: dict[int, tuple[int, int]] = {}
        for row in self.rows:
            first, last = spans.get(row.request, (row.step, row.step))
            spans[row.request] = (min(first, row.step), max(last, self.done(row)))
        for request in spans.keys() & self.aborts.keys():
            spans[request] = (spans[request][0], max(spans[request][1], self.aborts[request].step - 1))
        return spans

    def goes_on(self, request: int, step: int) -> bool:
        """Return whether a request began by an engine step, and does not end in it or before."""
        first, last = self.spans[request]
        return first <= step < last + int(request in self.aborts)

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
    def rows_of(self) -> Mapping[tuple[int, int], list[Row]]:
        """(request, attempt) -> its rows, by engine step."""
        rows: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for row in self.rows:
            rows[row.request, self.attempt(row)].append(row)
        return dict(rows)

    @cached_property
    def attempt_spans(self) -> Mapping[tuple[int, int], tuple[int, int]]:
        """(request, attempt) -> first and last engine step in which it ran.

        Of one that is aborted the last before that, or before its pages were taken.
        """
        spans = {one: (rows[0].step, max(map(self.done, rows))) for one, rows in self.rows_of.items()}
        for request in self.aborts:
            attempt = max((of for one, of in spans if one == request), default=None)
            if attempt is not None:
                first, last = spans[request, attempt]
                spans[request, attempt] = (first, max(last, self._last_owning(request)))
        return spans

    @cached_property
    def never(self) -> Mapping[tuple[int, int], int]:
        """The attempts that were never made, for their requests were aborted while they waited: when that was."""
        last = dict[int, int]()
        for request, attempt in self.attempt_spans:
            last[request] = max(attempt, last.get(request, -1))
        return {
            (one, last.get(one, -1) + 1): abort.step
            for one, abort in self.aborts.items()
            if one not in last or self.attempt_spans[one, last[one]][1] < abort.step - 1
        }

    def first_waiting(
        self, step: int, live: Iterable[tuple[int, int]], arrivals: Sequence[int]
    ) -> tuple[int, int] | None:
        """Return the attempt that waits in a step before all others, if any does while these are live."""
        begun = {request for request, _ in live}
        later = [one for one, (first, _) in self.attempt_spans.items() if first > step]
        later += [one for one, aborted in self.never.items() if aborted > step]
        waiting = [one for one in later if arrivals[one[0]] <= step and one[0] not in begun]
        return min(waiting, key=lambda one: (arrivals[one[0]], *one), default=None)

    def _last_owning(self, request: int) -> int:
        """Return the last step after which a request that is aborted has pages, as the pools say, if they do."""
        abort = self.aborts[request].step
        reports = self.trace.typed("pool.owners", PoolReport)
        if not reports:
            return abort - 1
        owned = (key.round for key, report in reports.items() if any(one.request == request for one in report.owners))
        return max((step for step in owned if step < abort), default=-1)

    def attempt(self, row: Row) -> int:
        """Return how often a row's request had been preempted before; of two engines each makes every other attempt."""
        # A round after the end is no round of the request, and nothing of it is returned.
        before = self._begun.get((row.request, row.round - 1), 0)
        preempted = self._begun.get((row.request, row.round), before)
        return 2 * preempted + row.phase if self.is_disaggregated else preempted

    def engine(self, attempt: int) -> int:
        """Return which engine makes an attempt: with PD disaggregation the prefill engine (0), or the decode engine."""
        return attempt % 2 if self.is_disaggregated else 0

    def came(self, request: int, attempt: int, arrival: int) -> tuple[int, int]:
        """Return when a request came to the engine of an attempt, and its place among those of that step."""
        before = self.rows_of.get((request, attempt - 1)) if self.engine(attempt) else None
        return (before[-1].step + 1, before[-1].place) if before else (arrival, request)

    def is_unfinished(self, row: Row) -> bool:
        """Return whether a row is of a round that an abort ended."""
        return row.request in self.aborts and row.round >= self.aborts[row.request].ended

    def waits(self, request: int, step: int) -> bool:
        """Return whether a request has not begun in a step, and does later, or is aborted instead."""
        abort = self.aborts.get(request)
        first = self.spans[request][0] if request in self.spans else abort.step if abort else -1
        return step < first

    def running(self, step: int) -> frozenset[int]:
        """Return the requests that hold memory while an engine step runs."""
        return frozenset(request for (request, _), (first, last) in self.attempt_spans.items() if first <= step <= last)

    def paused(self, step: int) -> frozenset[int]:
        """Return the requests that are preempted after an engine step, or may be, and run again later."""
        return frozenset(
            request
            for (request, attempt), (_, last) in self.attempt_spans.items()
            if last <= step < self._again(request, attempt)
        )

    def _again(self, request: int, attempt: int) -> int:
        """Return the step in which a request runs again after an attempt, or is aborted instead; -1 if neither."""
        if (request, attempt + 1) in self.attempt_spans:
            return self.attempt_spans[request, attempt + 1][0]
        abort, last = self.aborts.get(request), self.rows_of[request, attempt][-1]
        is_without = self.attempt_spans[request, attempt][1] < abort.step - 1 if abort else False
        return abort.step if abort and (is_without or self.leaves(last)) else -1

    @cached_property
    def cached(self) -> Mapping[tuple[int, int], int]:
        """(request, round) -> tokens that it was served, and did not run."""
        return {key[:2]: count for key, count in self.trace.typed("round.cached", int).items()}

    def served(self, step: int) -> tuple[Row, ...]:
        """Return the first chunks of a step behind what a prefix cache served."""
        chunks = self.batches.get((step, 0), ())
        return tuple(row for row in chunks if not row.chunk and self.cached.get((row.request, row.round), 0))

    @cached_property
    def attempts(self) -> Mapping[tuple[int, int], int]:
        """(request, round) -> how often the request had been preempted before the round ended."""
        return {key[:2]: count for key, count in self.trace.typed("round.attempt", int).items()}

    @cached_property
    def _begun(self) -> Mapping[tuple[int, int], int]:
        """The same, with rounds that ran a text again and were aborted: what they were is never reported."""
        begun = dict(self.attempts)
        for row in self.rows:
            if row.round and not row.phase and self.is_unfinished(row):
                begun.setdefault((row.request, row.round), begun.get((row.request, row.round - 1), 0) + 1)
        return begun

    @cached_property
    def resumed(self) -> frozenset[tuple[int, int]]:
        """The decode rounds (request, round) that ran a request's tokens again, for its pages had been taken."""
        before = self._begun.get
        return frozenset(
            (request, number)
            for (request, number), count in self._begun.items()
            if number and count > before((request, number - 1), 0)
        )

    @cached_property
    def moved(self) -> frozenset[tuple[int, int]]:
        """The rounds (request, round) before which a request got other pages than it had."""
        return self.resumed | (self.installed if self.is_disaggregated else frozenset())

    @cached_property
    def installed(self) -> frozenset[tuple[int, int]]:
        """The decode rounds (request, round) behind a prompt, or a text that was run again."""
        before = ((place, (place[0], place[1] - 1)) for place in self.decode_steps)
        return frozenset(place for place, prior in before if place[1] == 1 or prior in self.resumed)

    def leaves(self, row: Row) -> bool:
        """Return whether a row is the last that a request runs on its prefill engine before it is transferred."""
        is_end = not row.phase and self.ends[row.request, row.round] == row.step and not self.is_unfinished(row)
        return self.is_disaggregated and is_end and not self.is_last(row)

    def is_last(self, row: Row) -> bool:
        """Return whether a row is the last of its request."""
        return row.request not in self.aborts and self.spans[row.request][1] == self.done(row)

    def is_extended(self, row: Row) -> bool:
        """Return whether the draft is extended by a row: not by the last, if it is known in time."""
        return bool(self.overlap) or not self.is_last(row)

    def ending(self, step: int, phase: int) -> tuple[Row, ...]:
        """Return the rows of a batch whose requests end with it, as far as the host knows."""
        if self.overlap:
            return ()
        return tuple(row for row in self.batches.get((step, phase), ()) if self.is_last(row))

    def phase(self, launch: StepLaunch) -> int:
        """Return 1 for a launch of the decode batch that hands states over: one behind the commit of its step."""
        verified = (one.number for one in self.launches if (one.step, one.kind) == (launch.step, LaunchKind.COMMIT))
        return int(launch.number > min(verified, default=launch.number))
