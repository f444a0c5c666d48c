"""What an audit says: whether a draft is accepted as often as it should be, and what would explain that it is not."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from draftproof.properties.lib.base import Value
from draftproof.properties.values.verdict import Outcome

Count = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(ge=0, le=1)]


class ObservedCounts(Value, frozen=True, kw_only=True):
    """What an engine counted: rounds with `drafts`, and in how many of them the draft at each position was accepted.

    `rounds` are all rounds, those without drafts too, where that is known.
    """

    drafts: Annotated[int, Meta(ge=1)]
    accepted: Annotated[tuple[Count, ...], Meta(min_length=1, max_length=64)]
    rounds: Count | None = None


class PositionRate(Value, frozen=True, kw_only=True):
    """Of how many rounds the draft at a position (1, 2, ..) is accepted, with its 95 % interval, and what was seen.

    `p` is how probable a difference as large is if nothing is wrong.
    """

    position: int
    expected: Rate
    low: Rate
    high: Rate
    observed: Rate | None = None
    p: Rate | None = None


class Explanation(Value, frozen=True, kw_only=True):
    """A known mistake: the drafts that it would get accepted in a round, at each position too.

    `likelihood` is its share among all mistakes, given what was observed; `p` as of a position, if this were the cause.
    Of a log: how many rounds went as it says, and how many of these not as defined.
    """

    name: str
    expected: float
    positions: tuple[Rate, ...]
    likelihood: Rate | None = None
    p: Rate | None = None
    ruled_out: bool = False
    same_rounds: int | None = None
    explains: int | None = None


class AuditReport(Value, frozen=True, kw_only=True):
    """The result of an audit; `verdict` is None where nothing was observed.

    `expected` and `observed` are drafts accepted a round; `noticeable` is the least shortfall that is noticed in nine
    of ten cases; `false_alarms` how often a right engine fails. `same_rounds` and `other_texts`: of a log, in how many
    rounds all went as it should, and how many tokens are not the target's. `subject` is the name of what was run, with
    the `settings` that it was given and the `versions` of its packages; "" where nothing was.
    """

    verdict: Outcome | None
    says: str
    expected: float
    observed: float | None
    p: float | None
    false_alarms: float
    noticeable: float | None
    prompts: int
    rounds: int
    observed_rounds: int | None
    positions: tuple[PositionRate, ...]
    explanations: tuple[Explanation, ...] = ()
    same_rounds: int | None = None
    other_texts: int = 0
    subject: str = ""
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    versions: dict[str, str] = msgspec.field(default_factory=dict)
