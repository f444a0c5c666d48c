"""Divergence and Verdict: what a contract says of finished traces."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from draftproof.properties.lib.base import Value
from draftproof.properties.values.relations import Relation
from draftproof.properties.values.trace import Key


class Outcome(StrEnum):
    """Worst first; SKIP and ABSENT are neutral: not judged here, and not there to be judged."""

    ERROR = "ERROR"
    CRASH = "CRASH"
    HANG = "HANG"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    PASS = "PASS"
    SKIP = "SKIP"
    ABSENT = "ABSENT"


EXIT_CODES = {
    Outcome.PASS: 0,
    Outcome.FAIL: 1,
    Outcome.ERROR: 2,
    Outcome.CRASH: 3,
    Outcome.HANG: 4,
    Outcome.INCONCLUSIVE: 125,
    Outcome.SKIP: 125,
    Outcome.ABSENT: 125,
}
_SEVERITY = tuple(Outcome)


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the worst of them; neutral ones count only if there is nothing else, and then nothing was checked."""
    judged = [outcome for outcome in outcomes if outcome not in (Outcome.SKIP, Outcome.ABSENT)]
    return min(judged, key=_SEVERITY.index) if judged else Outcome.INCONCLUSIVE


class Divergence(Value, frozen=True, kw_only=True):
    """The first difference of a contract: where, expected, got, and how they are related.

    `index` is the first differing element of a vector, `margin` the reference's logit margin where a choice differs,
    `count` the number of differences of this kind in the scenario, among `total` places (0: not counted).
    `output_changed` says whether the run's emitted tokens are wrong, too (None: a kernel alone has none). Of a scenario
    with ranks `rank` is the one where it is, and `request` counts the requests of that rank (-1: there are none).
    """

    contract: str
    channel: str
    phase: str
    request: int
    round: int
    step: int
    layer: int
    row: int
    index: int
    expected: str
    got: str
    relation: Relation
    margin: float | None = None
    count: int = 1
    total: int = 0
    output_changed: bool | None = None
    rank: int = -1

    @property
    def key(self) -> Key:
        """Return where it is."""
        return Key(self.request, self.round, self.step, self.layer, self.row)


class Verdict(Value, frozen=True, kw_only=True):
    """What one contract says of a set of scenarios. `missing` names the minimum counts that were not reached."""

    name: str
    verdict: Outcome
    scenarios: int
    divergence: Divergence | None = None
    missing: tuple[str, ...] = ()
    reason: str = ""
