"""What comes of a subject that runs the same twice: in one process, and in another (S-SUBJECT-7)."""

from __future__ import annotations

from typing import Literal

import msgspec

from draftproof.properties.lib.base import Value
from draftproof.properties.values.verdict import Divergence, Outcome

RunPlace = Literal["the same process", "another process"]


class RunDifference(Value, frozen=True, kw_only=True):
    """The first thing that a second run has otherwise, `place` says where that was.

    `kind` is what differs: a value, which one of both may lack; the `order` of the reports, of which `number` is the
    first that is another; the `channels` that are declared; or an `error`, raised in one of them or another in each.
    `found` has the place of a value and of a report: channel, request, round, step, layer and row. `runs` are both
    sides in words. `scenario` counts from 0.
    """

    place: RunPlace
    kind: Literal["value", "order", "channels", "error"]
    scenario: int
    runs: tuple[str, str]
    found: Divergence | None = None
    number: int = -1


class DeterminismReport(Value, frozen=True, kw_only=True):
    """The result: `differences` has the first of either place, if there is one.

    `scenarios` were run in each place, `unfit` cannot be run by the subject; `observations` were compared in a pass
    over all scenarios, `raised` is the number of scenarios that raised in the first: those whose every run raises
    the same are no difference, and show nothing.
    """

    verdict: Outcome
    subject: str
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    scenarios: int
    unfit: int
    observations: int
    raised: int
    differences: tuple[RunDifference, ...]

    @property
    def whole(self) -> int:
        """The number of scenarios that ran to their end in the first run."""
        return self.scenarios - self.raised
