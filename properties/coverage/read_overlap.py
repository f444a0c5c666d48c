"""Read what an overlap made of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.overlap import Overlap
from draftproof.properties.evidence.schedule import Row
from draftproof.properties.values.delays import delay_of
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.trace import Key


def read_overlap(evidence: Evidence) -> Mapping[str, int]:
    """Return how often each of these was in a scenario."""
    own = evidence.scenario.schedule.overlap
    if not own:
        return Counter()
    overlap, steps = Overlap(evidence), sorted({row.step for row in evidence.schedule.rows})
    found = Counter(name for step in steps for name in _of_step(evidence, step))
    for row in evidence.schedule.rows:
        found.update(_of_row(evidence, overlap, row))
    late = (request for request, step in overlap.ended_at.items() if evidence.schedule.lag(step))
    found["overlap_sure_ends"] = sum(map(evidence.plans.is_sure_to_end, late))
    return found


def _of_step(evidence: Evidence, step: int) -> Iterator[str]:
    own = evidence.scenario.schedule.overlap
    if not evidence.schedule.lag(step):
        yield "overlap_waits"
        return
    yield "overlapped_steps"
    if delay_of(own, step) == "late":
        yield "overlap_late_steps"
    both = [evidence.schedule.batches.get((one, 1), ()) for one in (step, step + 1)]
    if not all(both):
        return
    if evidence.plans.width(step) != evidence.plans.width(step + 1):
        yield "overlap_widths_changed"
    if step + 2 <= evidence.schedule.last_step and (step + 2, 1) in evidence.schedule.batches:
        in_force = evidence.plans.steps_in_force
        if evidence.schedule.lag(step + 1) and in_force(step + 1) != in_force(step + 2):
            yield "overlap_late_decisions"


def _of_row(evidence: Evidence, overlap: Overlap, row: Row) -> Iterator[str]:
    place = (row.request, row.round)
    if not row.phase:
        if not row.round and not row.chunk and _comes_behind(evidence, overlap, row):
            yield "overlap_admitted_behind"
        return
    n, size, columns = evidence.contexts[place], evidence.page_size, evidence.scenario.columns
    needed = -(-(n + columns(max(evidence.depth(row), 0))) // size)
    if overlap.pages[place] > needed:
        yield "overlap_pages_ahead"
    before = evidence.contexts.get((row.request, row.round - 1), n)
    if needed > -(-(before + columns(evidence.plans.drafts_wanted(row))) // size):
        yield "overlap_pages_in_need"
    if overlap.is_after_end(row):
        yield "overlap_rounds_after_end"
        emitted = evidence.subject.typed("accept.emitted", TokenIds).get(Key(row.request, row.round - 1), ())
        if row.round > 1 and before + len(emitted) < n:
            yield "overlap_cut_ends"


def _comes_behind(evidence: Evidence, overlap: Overlap, row: Row) -> bool:
    """Return whether a request gets a page of one that ran a round after its end."""
    pages = set(evidence.tables.at(row).values())
    return any(
        pages & set(evidence.tables.at(other).values())
        for other in evidence.schedule.rows
        if other.step < row.step and other.phase and overlap.is_after_end(other)
    )
