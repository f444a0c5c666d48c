"""All that is known of a failing case: the smallest one, the parts that it takes, the commit that brought it in."""

from __future__ import annotations

from draftproof.fuzz.bisect.history import HistoryReport
from draftproof.fuzz.bisect.search import PartsReport
from draftproof.fuzz.shrinking.shrink_case import ShrinkReport
from draftproof.properties.lib.base import Value
from draftproof.properties.values.verdict import Outcome, worst


class ExplainReport(Value, frozen=True, kw_only=True):
    """What `draftproof explain` found of a case; a stage that was not reached, or not asked for, is None."""

    verdict: Outcome
    """That of the case."""
    case: str
    shrunk: ShrinkReport
    parts: PartsReport | None = None
    history: HistoryReport | None = None

    @property
    def outcome(self) -> Outcome:
        """PASS if the case is explained; INCONCLUSIVE if it does not fail, or not each time, or no commit is sure."""
        is_failing = self.shrunk.answer is not None and self.shrunk.verdict is not Outcome.SKIP
        is_bisected = self.parts is not None and self.parts.found is not None
        known = Outcome.PASS if is_failing and is_bisected else Outcome.INCONCLUSIVE
        return worst([known, self.history.verdict if self.history else known])
