"""Packed launches: each row of a step occurs once, behind the tokens of the row before, each token in its own slot."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.contracts.base import listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import Row, StepLaunch
from draftproof.properties.values.observed import PACKED, PackedRow, PackedRows
from draftproof.properties.values.relations import Different, Missing, Relation, Surplus, off_by
from draftproof.properties.values.trace import Key


def _packed(evidence: Evidence) -> Iterator[Mismatch]:
    """Check the rows of every packed launch against the rows of its step, in whatever order they are packed."""
    reported = dict(evidence.subject.typed("verify.packed", PackedRows))
    for launch in evidence.schedule.launches:
        if launch.kind not in PACKED or not evidence.scenario.schedule.mixed:
            continue
        key = Key(-1, launch.step, step=launch.number)
        rows = reported.pop(key, None)
        if rows is None:
            yield Mismatch("verify.packed", key, "its rows", None, Missing())
            continue
        yield from _rows(evidence, launch, key, rows)
    for key, surplus in reported.items():
        yield Mismatch("verify.packed", key, None, surplus, Surplus())


def _rows(evidence: Evidence, launch: StepLaunch, key: Key, rows: PackedRows) -> Iterator[Mismatch]:
    # A row without a position left has no tokens, and is not in the launch (S-OVERLAP-10).
    of_step = evidence.schedule.packed_at(launch.step)
    wanted = {(row.request, row.phase): row for row in of_step if row.count + row.phase}
    offset = 0
    for row in rows:
        expected = wanted.pop((row.request, row.phase), None)
        if expected is None:
            yield _say(key, row, "a row of this step, once", _kind(row), Surplus())
            continue
        yield from _row(evidence, expected, key, row, offset)
        offset += expected.count + expected.phase
    for request, phase in wanted:
        kind = "verify row" if phase else "chunk"
        yield Mismatch("verify.packed", key, f"a {kind} of request {request}", None, Missing())


def _row(evidence: Evidence, wanted: Row, key: Key, row: PackedRow, offset: int) -> Iterator[Mismatch]:
    """Check where a row begins and what it covers."""
    place = (wanted.request, wanted.round)
    start = evidence.contexts[place] if wanted.phase else evidence.schedule.chunk_starts[*place, wanted.chunk]
    tokens = wanted.count + wanted.phase
    for name, expected, got in (
        ("tokens", tokens, row.tokens),
        ("offset", offset, row.offset),
        ("position", start, row.position),
    ):
        if expected != got:
            yield _say(key, row, f"{name} {expected}", f"{name} {got}", off_by(expected, got))
    slots = tuple(evidence.tables.slot(*place, position) for position in range(start, start + tokens))
    if row.slots != slots:
        yield _say(key, row, f"slots {slots}", f"slots {row.slots}", Different())


def _kind(row: PackedRow) -> str:
    return f"a {'verify row' if row.phase else 'chunk'} of request {row.request}"


def _say(key: Key, row: PackedRow, expected: str, got: str, relation: Relation) -> Mismatch:
    return Mismatch("verify.packed", key, f"{_kind(row)} with {expected}", got, relation)


CONTRACTS = (
    listed(
        "launch.packed",
        _packed,
        ("verify.packed",),
        reads=("graph.replay", "round.rows", "round.table", "commit.length"),
        cites="S-MIXED-1, S-MIXED-3",
        minimum="scenarios mixed_launches",
        concerns=lambda evidence: evidence.scenario.schedule.mixed,
    ),
)
