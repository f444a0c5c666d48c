"""A host that plans a step while the one before runs: which requests run when, on which pages, and buffer reuse."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from draftproof.properties.contracts.base import listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.overlap import Overlap, Use
from draftproof.properties.evidence.schedule import Row
from draftproof.properties.values.observed import BufferKind, DiscardedRound, PoolReport, SharedUse
from draftproof.properties.values.relations import (
    Different,
    Missing,
    OutOfOrder,
    OutOfRange,
    Relation,
    Surplus,
    Unowned,
    off_by,
)
from draftproof.properties.values.trace import Key


def _overlaps(evidence: Evidence) -> bool:
    return bool(evidence.scenario.schedule.overlap)


def _schedule(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that a request runs in every step up to its last, and one more if the host cannot know of its end yet."""
    overlap, schedule = Overlap(evidence), evidence.schedule
    rows: dict[tuple[int, int], dict[int, Row]] = defaultdict(dict)
    for row in schedule.rows:
        rows[row.request, schedule.attempt(row)][row.step] = row
    for (request, attempt), of_request in sorted(rows.items()):
        last = overlap.runs_on.get(request, overlap.ended_at.get(request, -1))
        if request in schedule.aborts or (request, attempt + 1) in rows:
            last = max(of_request)
        for step, row in of_request.items():
            if step > last:
                known = f"ended in step {overlap.ended_at.get(request, -1)}"
                yield _mismatch(row.request, row.round, known, f"a row in step {step}", Surplus())
        for step in range(min(of_request), last + 1):
            waits = _is_crowded(evidence, (request, attempt), step) or not _has_tokens(evidence, request, step)
            if step not in of_request and not waits:
                number = max((row.round for row in of_request.values() if row.step < step), default=0) + 1
                yield _mismatch(request, number, f"a row in step {step}", None, Missing())


def _has_tokens(evidence: Evidence, request: int, step: int) -> bool:
    """Return whether those admitted before a request leave it tokens of a step's budget."""
    has_budget = evidence.scenario.schedule.token_budget
    return not has_budget or evidence.plans.tokens_of_step(step).get(request, 0) > 0


def _is_crowded(evidence: Evidence, attempt: tuple[int, int], step: int) -> bool:
    """Return whether the decode batch of a step is full of requests that were admitted before this one."""
    schedule, requests = evidence.schedule, evidence.scenario.requests

    def admitted(one: tuple[int, int]) -> tuple[int, int, int]:
        return (schedule.attempt_spans[one][0], requests[one[0]].arrival, one[0])

    batch = [(row.request, schedule.attempt(row)) for row in schedule.batches.get((step, 1), ())]
    before = [one for one in batch if admitted(one) < admitted(attempt)]
    return len(before) >= evidence.scenario.schedule.max_batch


def _mismatch(request: int, round_: int, expected: str, got: str | None, relation: Relation) -> Mismatch:
    return Mismatch("round.rows", Key(request, round_, step=0), expected, got, relation)


def _discarded(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that a round after the end starts where the device left the request, and is one that is thrown away."""
    overlap, channel = Overlap(evidence), "overlap.discarded"
    reported = dict(evidence.discarded)
    for row in evidence.schedule.rows:
        if not overlap.is_after_end(row):
            continue
        key = Key(row.request, row.round)
        got, n, depth = reported.pop(key, None), overlap.last_context(row.request), overlap.drafts_after_end(row)
        drafts = evidence.scenario.most_drafts(depth) if depth > 0 else depth
        if got is None:
            yield Mismatch(channel, key, "a round that is discarded", None, Missing())
            continue
        if got.context != n:
            yield Mismatch(channel, key, f"length {n}", f"length {got.context}", off_by(n, got.context))
        if evidence.form.proposes == "lookup" and 0 <= got.drafts <= drafts:
            # What it found is not reported of such a round.
            drafts = got.drafts
        if (got.drafts, row.count) != (drafts, drafts):
            yield Mismatch(channel, key, f"{drafts} drafts", f"{got.drafts} drafts", off_by(drafts, got.drafts))
        low, high = (1, depth + 1) if depth >= 0 else (0, 0)
        if not low <= got.committed <= high:
            yield Mismatch(channel, key, f"{low} .. {high} tokens", f"{got.committed} tokens", OutOfRange())
    for key, surplus in reported.items():
        yield Mismatch(channel, key, None, _name(surplus), Surplus())


def _name(one: DiscardedRound) -> str:
    return f"a round of {one.drafts} drafts at length {one.context}"


def _pages(evidence: Evidence) -> Iterator[Mismatch]:
    """Check that a request has pages for the most that the step in flight may have added, and for its round.

    It keeps them until the host has processed that round.
    """
    overlap, reports = Overlap(evidence), evidence.subject.typed("pool.owners", PoolReport)
    for row in evidence.schedule.rows:
        place, report = (row.request, row.round), reports.get(Key(-1, row.step))
        table = evidence.tables.pages.get(place, {})
        wanted = overlap.pages[place] - (evidence.freed_before(*place) if row.phase else 0)
        if row.phase and len(table) != wanted:
            key = Key(*place, row=min(wanted, len(table)))
            yield Mismatch("round.table", key, f"{wanted} pages", f"{len(table)} pages", off_by(wanted, len(table)))
        if report is None or not evidence.schedule.goes_on(row.request, row.step):
            continue
        owned = {owner.index for owner in report.owners if owner.request == row.request}
        for column, page in evidence.kept_table(row, row.step + 1).items():
            if page not in owned:
                key = Key(*place, row=column)
                yield Mismatch("round.table", key, "a page that it has while the round is in flight", page, Unowned())


def _buffers(evidence: Evidence) -> Iterator[Mismatch]:
    """Check which side uses which buffer when, and that both sides are done with it before it is used again."""
    channel, order = "overlap.buffers", dict[Key, SharedUse]()
    reported = evidence.subject.typed(channel, SharedUse)
    numbers: dict[int, int] = defaultdict(int)
    for use in Overlap(evidence).uses:
        key = Key(-1, use.step, step=numbers[use.step])
        numbers[use.step] += 1
        got = reported.get(key)
        if got is None:
            yield Mismatch(channel, key, _said(use), None, Missing())
            continue
        order[key] = got
        found = Use(use.step, got.kind, got.side, got.work, got.waited)
        if found != use:
            yield Mismatch(channel, key, _said(use), _said(found), Different())
    for key in sorted(reported.keys() - order.keys()):
        yield Mismatch(channel, key, None, reported[key], Surplus())
    yield from _in_turns(channel, order)


def _in_turns(channel: str, order: dict[Key, SharedUse]) -> Iterator[Mismatch]:
    """Check each buffer: one side fills it, the other reads it, and neither goes on before the other is done.

    The device is done with a work when the host has waited for it; the host, when it gives the device a later one.
    """
    before: dict[tuple[int, int], SharedUse] = {}
    for key, use in sorted(order.items()):
        fills = 0 if use.kind == BufferKind.INPUTS else 1
        last = before.get((use.kind, use.place))
        if use.side == fills and last is not None and last.side == fills:
            yield Mismatch(channel, key, f"{_buffer(use)} read for work {last.work}", "filled again", OutOfOrder())
        if use.side != fills and (last is None or (last.side, last.work) != (fills, use.work)):
            yield Mismatch(channel, key, f"{_buffer(use)} filled for work {use.work}", "read", OutOfOrder())
        if last is not None and last.side == 1 and use.side == 0 and use.waited < last.work:
            free = f"{_buffer(use)} free of work {last.work}"
            yield Mismatch(channel, key, free, f"used after work {use.waited}", OutOfOrder())
        before[use.kind, use.place] = use


def _buffer(use: SharedUse) -> str:
    return f"buffer {use.place} of {_kind(use.kind)}"


def _kind(kind: int) -> str:
    """Return a kind of buffer in words; what is no kind stays a number."""
    return next((one.name.lower() for one in BufferKind if one == kind), f"kind {kind}")


def _said(use: Use) -> str:
    by = "the device" if use.side else "the host"
    return f"{_kind(use.kind)} of work {use.work} used by {by} after work {use.waited}"


_of_overlap = partial(listed, concerns=_overlaps)
CONTRACTS = (
    _of_overlap(
        "overlap.schedule",
        _schedule,
        ("round.rows",),
        partial=("round.rows",),
        cites="S-OVERLAP-1, S-OVERLAP-5",
        minimum="overlapped_steps overlap_rounds_after_end overlap_sure_ends",
    ),
    _of_overlap(
        "overlap.discarded",
        _discarded,
        ("overlap.discarded",),
        reads=("round.rows",),
        cites="S-OVERLAP-4, S-OVERLAP-5",
        minimum="overlap_rounds_after_end overlap_cut_ends",
    ),
    _of_overlap(
        "overlap.pages",
        _pages,
        ("round.table",),
        reads=("round.rows", "commit.length"),
        also=("pool.owners",),
        partial=("round.table",),
        cites="S-OVERLAP-3, S-OVERLAP-5",
        minimum="overlapped_steps overlap_pages_ahead",
    ),
    _of_overlap(
        "overlap.buffers",
        _buffers,
        ("overlap.buffers",),
        reads=("round.rows",),
        cites="S-OVERLAP-7",
        minimum="overlapped_steps overlap_late_steps",
    ),
)
