"""The page tables and state slots that a subject reports.

`P` page size; slot = page * P + offset; page 0 and its slots are reserved for padding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from draftproof.properties.evidence.schedule import ObservedSchedule, Row
from draftproof.properties.values.trace import Key, Trace


@dataclass(frozen=True)
class ObservedTables:
    """The page tables of one trace: what lies where."""

    trace: Trace
    page_size: int
    schedule: ObservedSchedule

    @cached_property
    def pages(self) -> Mapping[tuple[int, int], Mapping[int, int]]:
        """(request, round) -> column -> page."""
        tables: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        for key, page in self.trace.typed("round.table", int).items():
            tables[key.request, key.round][key.row] = page
        return tables

    def at(self, row: Row) -> Mapping[int, int]:
        """Return column -> page at a row's engine step; of a prefill's table what its chunks had reached by then."""
        table = self.pages.get((row.request, row.round), {})
        if row.phase:
            return table
        end = self.schedule.chunk_starts[row.request, row.round, row.chunk] + row.count
        return {column: page for column, page in table.items() if column * self.page_size < end}

    def slot(self, request: int, round_: int, position: int) -> int | None:
        """Return the slot of a position by the request's own table; None where the table has no page."""
        page = self.pages.get((request, round_), {}).get(position // self.page_size)
        return None if page is None else page * self.page_size + position % self.page_size

    def position(self, request: int, round_: int, slot: int) -> int | None:
        """Return the position that a slot is of, for one request; None if the slot is not its own."""
        for column, page in self.pages.get((request, round_), {}).items():
            if page == slot // self.page_size:
                return column * self.page_size + slot % self.page_size
        return None

    def state_slot(self, request: int, round_: int) -> int | None:
        """Return the slot of the recurrent state that a request reports in a round."""
        return self.trace.typed("round.state", int).get(Key(request, round_))
