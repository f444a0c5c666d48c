"""Rows whose results are discarded: surplus columns and padding of draft, verify and extend launches.

Nothing reads what they compute, so only the positions and slots that they use can be wrong: where a host raises an
IndexError, a GPU silently reads or writes memory that belongs to something else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from operator import le
from typing import NamedTuple

from msgspec.structs import astuple

from draftproof.properties.contracts.base import Contract, listed
from draftproof.properties.contracts.launches import packed_held, rows_held
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import Row, StepLaunch
from draftproof.properties.values.observed import DiscardedRows, LaunchKind
from draftproof.properties.values.relations import Missing, OutOfRange, Surplus
from draftproof.properties.values.trace import Key


class _Columns(NamedTuple):
    """The columns of a launch, and of its live rows by place how many of them belong to the row, from 0 on."""

    all: range
    live: tuple[int, ...]


def _columns(evidence: Evidence, launch: StepLaunch) -> _Columns:
    """Return the columns that a launch runs for each place; results of columns that are not live are discarded."""
    form, batch = evidence.form, evidence.schedule.batches.get((launch.step, 1), ())
    if packed_held(evidence, launch):
        return _Columns(range(1), (1,) * launch.tokens)
    if launch.kind == LaunchKind.VERIFY:
        return _Columns(range(launch.width), tuple(row.count + 1 for row in batch))
    if launch.kind == LaunchKind.EXTEND:
        going_on = (row for row in batch if evidence.schedule.is_extended(row))
        return _Columns(range(launch.width + form.reach), tuple(_extended(evidence, row) for row in going_on))
    if form.proposes == "block":
        return _Columns(range(launch.width), tuple(form.entries(row.count) for row in batch))
    if form.tree:
        entries = form.tree.entries(form.depth(launch.width))
        return _Columns(range(entries), tuple(form.entries(evidence.depth(row)) for row in batch))
    # Draft steps count from 1.
    return _Columns(range(1, form.launched(launch.width) + 1), tuple(form.forwards(row.count) + 1 for row in batch))


def _extended(evidence: Evidence, row: Row) -> int:
    """Return the entries of a row that its extend makes: of what was committed, and as far back as guesses reach."""
    n = evidence.contexts[row.request, row.round]
    return evidence.length_after(row) - max(0, n - evidence.form.reach)


def _discarded(channel: str, kind: LaunchKind, evidence: Evidence) -> Iterator[Mismatch]:
    """Check that surplus and padding stay within their bounds, none missing and none too many."""
    reported = dict(evidence.subject.typed(channel, DiscardedRows))
    for launch in evidence.schedule.launches:
        packed = packed_held(evidence, launch)
        if launch.kind != kind and not (kind == LaunchKind.VERIFY and packed):
            continue
        key, columns = Key(-1, launch.step, step=launch.number), _columns(evidence, launch)
        # What is captured at a size is padded to it when it runs eagerly, too.
        # Beside linear layers ranks pad packed rows where they are gathered, and nowhere else (S-RANK-9).
        of_tokens = launch.tokens if evidence.hybrid else packed
        graphs, held = evidence.scenario.graphs, of_tokens if packed else rows_held(evidence, launch)
        size = next((size for size in (graphs.tokens if packed else graphs.sizes) if size >= held), held)
        live = dict(enumerate(columns.live))
        expected = [(place, at) for place in range(size) for at in columns.all if at >= live.get(place, 0)]
        rows = reported.pop(key, ())
        found = [(row.place, row.column) for row in rows]
        if found != expected:
            relation = Missing() if len(found) < len(expected) else Surplus()
            yield Mismatch(channel, key, f"{len(expected)} rows", rows or None, relation)
        of_live, of_padding = (_highest(evidence, kind, padding=padding) for padding in (False, True))
        for row in rows:
            values, highest = astuple(row), of_live if row.place in live else of_padding
            if min(values) < 0 or not all(map(le, values, highest)):
                position, _, req_row, state_slot = highest[2:]
                bounds = f"position 0 .. {position}, slot 0, request row 0 .. {req_row}, state slot 0 .. {state_slot}"
                yield Mismatch(channel, key, bounds, row, OutOfRange())
    for key, rows in reported.items():
        yield Mismatch(channel, key, None, rows, Surplus())


def _highest(evidence: Evidence, kind: LaunchKind, padding: bool) -> tuple[float, ...]:
    """Return the highest value of each field of a row; where it stands is compared apart."""
    memory = evidence.scenario.memory
    if padding:
        return (math.inf, math.inf, 0, 0, 0, 0)
    states = memory.request_slots if kind == LaunchKind.VERIFY else 0
    return (math.inf, math.inf, memory.max_len - 1, 0, memory.request_slots, states)


def _contract(name: str, channel: str, kind: LaunchKind) -> Contract:
    return listed(
        name,
        partial(_discarded, channel, kind),
        (channel,),
        reads=("graph.replay", "round.rows", "commit.length"),
        also=("overlap.discarded",),
        cites="S-BATCH-2",
        minimum="scenarios padded_replays",
    )


CONTRACTS = (
    _contract("draft.discarded", "draft.discarded", LaunchKind.DRAFT),
    _contract("launch.discarded", "verify.discarded", LaunchKind.VERIFY),
    _contract("extend.discarded", "extend.discarded", LaunchKind.EXTEND),
)
