"""What a rank has to run in each engine step, as if it were alone: what it brings to a lockstep."""

from __future__ import annotations

from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.lockstep import RankWork, StepWork
from draftproof.properties.evidence.schedule import Row
from draftproof.properties.values.observed import Collective


def rank_work(one: Evidence) -> RankWork:
    """Return the work of one rank, and the collectives that it entered."""
    steps = {step for step, _ in one.schedule.batches}
    return RankWork(
        steps={step: _in_step(one, step) for step in steps},
        last_step=one.schedule.last_step,
        collectives=one.subject.typed("rank.collectives", Collective),
    )


def _in_step(one: Evidence, step: int) -> StepWork:
    chunks, rows = (one.schedule.batches.get((step, phase), ()) for phase in (0, 1))
    return StepWork(
        chunks=len(chunks),
        tokens=sum(row.count for row in chunks),
        entries=sum(_entries(one, row) for row in chunks),
        packed=sum(row.count + row.phase for row in one.schedule.packed_at(step)),
        rows=len(rows),
        going_on=len(rows) - len(one.schedule.ending(step, 1)),
        width=one.plans.width(step),
        planned_width=_planned_width(one, step, rows),
        drafts=runs_draft(one, step),
    )


def runs_draft(one: Evidence, step: int) -> bool:
    """Return whether the draft runs for any row of a step."""
    if one.schedule.overlap:
        return one.plans.width(step) > 1 and one.form.proposes not in ("lookup", "chain")
    return any(bool(one.form.entries(one.depth(row))) for row in one.schedule.batches.get((step, 1), ()))


def _planned_width(one: Evidence, step: int, rows: tuple[Row, ...]) -> int:
    if one.schedule.overlap:
        return one.plans.width(step)
    if not any(one.plans.drafts_allowed(row, one.contexts[row.request, row.round]) for row in rows):
        return 1
    return one.scenario.most_drafts(one.plans.steps_in_force(step)) + 1


def _entries(one: Evidence, row: Row) -> int:
    """Return how many entries a draft makes of a chunk: its tokens, and of a chain those made with guesses again."""
    start = one.schedule.chunk_starts[row.request, row.round, row.chunk]
    served = one.schedule.cached.get((row.request, row.round), 0)
    return row.count + min(one.form.reach, start - served)
