"""The steps that a host waits for although they have a delay: the next one hangs on their results (S-OVERLAP-10)."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator, Mapping

from draftproof.properties.evidence.schedule import ObservedSchedule, Row
from draftproof.properties.evidence.tables import ObservedTables
from draftproof.properties.values.delays import lag
from draftproof.properties.values.observed import PoolReport
from draftproof.properties.values.scenario import Scenario, columns_freed
from draftproof.properties.values.trace import Key


def waited_steps(scenario: Scenario, schedule: ObservedSchedule) -> frozenset[int]:
    """Return those steps of a run; `schedule` need not know of them."""
    own = scenario.schedule
    if not own.overlap:
        return frozenset()
    steps = sorted({row.step for row in schedule.rows})
    waited = set[int]()
    holding = _Holding(scenario, schedule)
    for step in steps:
        before_late = step - 1 not in waited and lag(own.overlap, step - 1) > 0
        may_run_out = own.preemption and holding.may_run_out(step, before_late=before_late)
        if may_run_out or any(_needs_text(scenario, row) for row in schedule.rows_at(step)):
            waited.add(step)
    return frozenset(waited)


def _needs_text(scenario: Scenario, row: Row) -> bool:
    """Return whether a row's mask goes by all tokens before it, or its request is aborted in the next step."""
    request = scenario.requests[row.request]
    return bool(request.grammar or request.min_tokens) or request.abort_at == row.step + 1


class _Holding:
    """Which requests hold which pages while a step runs, as their rows and the owners of pages say."""

    def __init__(self, scenario: Scenario, schedule: ObservedSchedule) -> None:
        self._scenario, self._schedule = scenario, schedule
        self._tables = ObservedTables(schedule.trace, scenario.memory.page_size, schedule)
        self._lengths: Mapping[Key, int] = schedule.trace.typed("commit.length", int)
        self._reports = schedule.trace.typed("pool.owners", PoolReport)
        self._rows: dict[int, list[Row]] = defaultdict(list)
        for row in schedule.rows:
            self._rows[row.request].append(row)

    def may_run_out(self, step: int, *, before_late: bool) -> bool:
        """Return whether the next step may have too few pages, as each row may take as many more as a round can."""
        size, pages, needed = self._scenario.memory.page_size, set[int](), 0
        for row in self._last_rows(step, before_late=before_late):
            table, freed = self._tables.at(row), self._freed(row, step, before_late=before_late)
            pages |= {page for column, page in table.items() if column >= freed}
            left = self._text(row) - self._end(row)
            if row.phase or left <= 0:
                needed += -(-self._scenario.columns(self._scenario.steps) // size)
            else:
                needed += -(-self._text(row) // size) - len(table)
        return self._scenario.memory.pages - len(pages) < needed

    def _freed(self, row: Row, step: int, *, before_late: bool) -> int:
        """Return the columns that windows had freed of a row's table when a step was given to the device."""
        in_flight = row.step == step or (before_late and row.step == step - 1)
        is_in_prefill = not row.phase and (in_flight or self._end(row) < self._text(row))
        if row.step == step or is_in_prefill:
            return 0
        return columns_freed(self._scenario, self._lengths.get(Key(row.request, row.round - int(in_flight)), 0))

    def _last_rows(self, step: int, *, before_late: bool) -> Iterator[Row]:
        """Yield the last row of each request that holds memory: with a row in the step, in flight, or with pages."""
        report = self._reports.get(Key(-1, step))
        running = {owner.request for owner in report.owners} if report else set()
        running |= {row.request for row in self._schedule.rows_at(step)}
        running |= {row.request for row in self._schedule.rows_at(step - 1)} if before_late else set()
        for request in sorted(running & self._rows.keys()):
            rows = self._rows[request]
            if begun := bisect(rows, step, key=lambda row: row.step):
                yield rows[begun - 1]

    def _text(self, row: Row) -> int:
        """Return how many tokens the prefill of a row runs."""
        if not row.round:
            return len(self._scenario.requests[row.request].prompt)
        return self._lengths.get(Key(row.request, row.round - 1), 0) + 1

    def _end(self, row: Row) -> int:
        return self._schedule.chunk_starts.get((row.request, row.round, row.chunk), 0) + row.count
