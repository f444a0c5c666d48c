"""What ranks that run in lockstep have to agree on: the most of what each has to run (S-RANK)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from draftproof.properties.values.observed import Collective
from draftproof.properties.values.trace import Key


class StepWork(NamedTuple):
    """What a rank has to run in an engine step, as if it were alone; by default nothing.

    Of prompts these are `chunks`, their `tokens`, and the `entries` that a draft makes of them. Of the decode batch
    they are `rows`, those that are `going_on` after it, the verify `width`, the one that is planned before drafts are
    known (`planned_width`), and whether the draft runs for any row (`drafts`).
    A launch with all rows of the step has `packed` tokens.
    """

    chunks: int = 0
    tokens: int = 0
    entries: int = 0
    rows: int = 0
    going_on: int = 0
    width: int = 1
    planned_width: int = 1
    drafts: bool = False
    packed: int = 0


IDLE = StepWork()


@dataclass(frozen=True)
class RankWork:
    """What a rank has to run, by engine step, up to its last; `collectives` are those that it entered."""

    steps: Mapping[int, StepWork]
    last_step: int
    collectives: Mapping[Key, Collective]


@dataclass(frozen=True)
class Lockstep:
    """The work of all ranks."""

    ranks: tuple[RankWork, ...]

    def rows(self, step: int, phase: int) -> int:
        """Return the most rows that a rank has in a batch."""
        return self._most(step, lambda one: one.rows if phase else one.chunks)

    def tokens(self, step: int) -> int:
        """Return the most prompt tokens that a rank has in a step."""
        return self._most(step, lambda one: one.tokens)

    def packed(self, step: int) -> int:
        """Return the most tokens that a rank has in a launch with all rows of a step."""
        return self._most(step, lambda one: one.packed)

    def going_on(self, step: int) -> int:
        """Return the most rows of a decode batch that go on after it on one rank."""
        return self._most(step, lambda one: one.going_on)

    def width(self, step: int) -> int:
        """Return the verify width of a step: the planned one, or 1 where no rank has any draft in the end."""
        has_drafts = self._most(step, lambda one: one.width) > 1
        return self.planned_width(step) if has_drafts else 1

    def planned_width(self, step: int) -> int:
        """Return the largest verify width that the batch of a rank is planned with, before its drafts are known."""
        return self._most(step, lambda one: one.planned_width)

    def entries(self, step: int) -> int:
        """Return the most rows that a rank's draft has in a step of the prompts that run."""
        return self._most(step, lambda one: one.entries)

    def drafts(self, step: int) -> bool:
        """Return whether any rank has a row for which its draft runs."""
        return bool(self._most(step, lambda one: one.drafts))

    @property
    def steps(self) -> set[int]:
        """The steps in which any rank has a row."""
        return {step for one in self.ranks for step in one.steps}

    @cached_property
    def last_step(self) -> int:
        """The last step in which any rank has something to run, or to abort."""
        return max((one.last_step for one in self.ranks), default=-1)

    def _most(self, step: int, of: Callable[[StepWork], int]) -> int:
        return max((of(one.steps.get(step, IDLE)) for one in self.ranks), default=0)
