"""What ranks that run in lockstep have to agree on, read off the schedules of all (docs/semantics.md, S-RANK)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from draftproof.properties.values.observed import GRAPHED

if TYPE_CHECKING:
    from draftproof.properties.evidence.evidence import Evidence
    from draftproof.properties.evidence.schedule import Row, StepLaunch


@dataclass(frozen=True)
class Lockstep:
    """The runs of all ranks, each as if it were alone."""

    alone: tuple[Evidence, ...]

    def rows(self, step: int, phase: int) -> int:
        """Return the most rows that a rank has in a batch."""
        return self._most(lambda one: len(one.schedule.batches.get((step, phase), ())))

    def tokens(self, step: int) -> int:
        """Return the most prompt tokens that a rank has in a step."""
        return self._most(lambda one: sum(row.count for row in one.schedule.batches.get((step, 0), ())))

    def going_on(self, step: int) -> int:
        """Return the most rows of a decode batch that go on after it on one rank."""
        return self._most(lambda one: len(one.schedule.batches.get((step, 1), ())) - len(one.schedule.ending(step, 1)))

    def width(self, step: int) -> int:
        """Return the verify width of a step: the planned one, or 1 where no rank has any draft in the end."""
        has_drafts = any(one.plans.width(step) > 1 for one in self.alone if (step, 1) in one.schedule.batches)
        return self.planned_width(step) if has_drafts else 1

    def proposes(self, step: int) -> bool:
        """Return whether any rank has a row that may have drafts."""
        return self.planned_width(step) > 1

    def planned_width(self, step: int) -> int:
        """Return the largest verify width that the batch of a rank is planned with, before its drafts are known."""
        return self._most(lambda one: _planned_width(one, step), 1)

    def entries(self, step: int) -> int:
        """Return the most rows that a rank's draft has in a step of the prompts that run."""
        return self._most(lambda one: sum(_entries(one, row) for row in one.schedule.batches.get((step, 0), ())))

    def drafts(self, step: int) -> bool:
        """Return whether any rank has a row for which its draft runs."""
        return any(
            bool(one.form.entries(one.depth(row)))
            for one in self.alone
            for row in one.schedule.batches.get((step, 1), ())
        )

    @cached_property
    def last_step(self) -> int:
        """The last step in which any rank has something to run, or to abort."""
        return self._most(lambda one: one.schedule.last_step, -1)

    def _most(self, of: Callable[[Evidence], int], least: int = 0) -> int:
        return max(map(of, self.alone), default=least)


def _planned_width(one: Evidence, step: int) -> int:
    rows = one.schedule.batches.get((step, 1), ())
    if not any(one.plans.drafts_allowed(row, one.contexts[row.request, row.round]) for row in rows):
        return 1
    return one.scenario.most_drafts(one.plans.steps_in_force(step)) + 1


def _entries(one: Evidence, row: Row) -> int:
    """Return how many entries a draft makes of a chunk: its tokens, and of a chain those made with guesses again."""
    start = one.schedule.chunk_starts[row.request, row.round, row.chunk]
    served = one.schedule.cached.get((row.request, row.round), 0)
    return row.count + min(one.form.reach, start - served)


def rank_counts(one: Evidence) -> dict[str, int]:
    """Return how often a rank had nothing of its own to run, or ran more for another's sake, by the names of facts."""
    lockstep = one.lockstep
    if lockstep is None:
        return {}
    own, steps, sizes = one.schedule.batches, range(lockstep.last_step + 1), one.scenario.graphs.sizes

    def size(rows: int) -> int:
        return next((size for size in sizes if size >= rows), 0)

    rows = {step: len(own.get((step, 1), ())) for step in steps}
    beside = {step: lockstep.rows(step, 1) for step in steps if rows[step]}
    return {
        "idle_steps": sum((step, 0) not in own and (step, 1) not in own for step in steps),
        "idle_launches": sum(launch.rows == 0 for launch in _graphed(one)),
        "agreed_tokens": sum(0 < sum(row.count for row in own.get((at, 0), ())) < lockstep.tokens(at) for at in steps),
        "agreed_rows": sum(rows[step] < most for step, most in beside.items()),
        "agreed_sizes": sum(size(rows[step]) != size(most) for step, most in beside.items()),
        "agreed_steps": sum(one.plans.width(step) < lockstep.width(step) for step in beside),
        "windows_of_ranks": int(getattr(one.scenario.model, "window", 0) > 0),
    }


def _graphed(one: Evidence) -> list[StepLaunch]:
    return [launch for launch in one.schedule.launches if launch.kind in GRAPHED]
