"""The counters of a run, as a server gives them: drafts verified and accepted, also by their place in the round.

They are the sums over the rounds that the subject reports, or else over those that the reference expects of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from draftproof.properties.contracts.base import listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.tolerances import CLOSE_EXPERTS, is_close
from draftproof.properties.values.limits import num_accepted
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.relations import Missing, off_by
from draftproof.properties.values.script import RoundScript
from draftproof.properties.values.trace import Key

_CHANNELS = ("total.rounds", "total.drafts", "total.accepted", "total.accepted_at")
_AT = Key(-1, 0)
_CHOICES = ("verify.choice", "draft.step.proposal", "draft.block.proposal", "extend.proposal")


class _Bounds(NamedTuple):
    """The least and the most that a counter may say."""

    low: int
    high: int

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} .. {self.high}"


class _Counted(NamedTuple):
    """What a round adds to the counters."""

    drafts: _Bounds
    accepted: _Bounds


def _wrong(evidence: Evidence) -> Iterator[Mismatch]:
    rounds = _own(evidence) or _expected(evidence)
    drafts, accepted = [one.drafts for one in rounds], [one.accepted for one in rounds]
    expected = {
        "total.rounds": _sum(_Bounds(low > 0, high > 0) for low, high in drafts),
        "total.drafts": _sum(drafts),
        "total.accepted": _sum(accepted),
    }
    for channel, bounds in expected.items():
        if channel in evidence.subject.channels:
            yield from _outside(channel, bounds, evidence.subject.typed(channel, int).get(_AT))
    if "total.accepted_at" not in evidence.subject.channels:
        return
    told = evidence.subject.typed("total.accepted_at", tuple).get(_AT)
    for place in range(max(evidence.scenario.steps, len(told or ()))):
        bounds = _sum(_Bounds(low > place, high > place) for low, high in accepted)
        got = None if told is None else told[place] if place < len(told) else 0
        yield from _outside("total.accepted_at", bounds, got, f" at place {place + 1}")


def _sum(each: Iterator[_Bounds] | list[_Bounds]) -> _Bounds:
    listed = list(each)
    return _Bounds(sum(one.low for one in listed), sum(one.high for one in listed))


def _outside(channel: str, bounds: _Bounds, got: int | None, where: str = "") -> Iterator[Mismatch]:
    """Yield a counter that says nothing, too little or too much."""
    if got is None:
        yield Mismatch(channel, _AT, f"{bounds}{where}", None, Missing())
    elif not bounds.low <= got <= bounds.high:
        near = bounds.low if got < bounds.low else bounds.high
        yield Mismatch(channel, _AT, f"{bounds}{where}", f"{got}{where}", off_by(near, got))


def _own(evidence: Evidence) -> list[_Counted]:
    """Return the rounds that a subject reports, with their drafts and how many were right."""
    correct = evidence.subject.typed("accept.correct_len", int)
    drafts = evidence.subject.typed("round.drafts", TokenIds)
    counts = ((len(drafts[key]), correct[key]) for key in sorted(drafts.keys() & correct.keys()))
    return [_Counted(_Bounds(count, count), _Bounds(right, right)) for count, right in counts]


def _expected(evidence: Evidence) -> list[_Counted]:
    """Return the rounds by the reference."""
    return [
        _round(evidence, request, round_)
        for request, script in enumerate(evidence.script.requests)
        for round_ in (script.first, *script.rounds)
        if round_ is not None
    ]


def _round(evidence: Evidence, request: int, round_: RoundScript) -> _Counted:
    """Return what a round adds; a subject that chooses its drafts may have more of them near a limit (S-TOTAL-2)."""
    scenario, drafts = evidence.scenario, round_.num_verified
    right = num_accepted(round_.correct_len, len(round_.emitted), evidence.limits)
    asked = scenario.requests[request]
    left = asked.budget - (round_.context + 1 - len(asked.prompt))
    is_limited = min(scenario.memory.max_len - 1 - round_.context, left - 1) < scenario.steps
    if not evidence.limits.chooses_drafts:
        return _Counted(_Bounds(drafts, drafts), _Bounds(right, right))
    most = max(scenario.steps, drafts) if is_limited else drafts
    return _Counted(
        _Bounds(drafts, most),
        _Bounds(min(right, len(round_.emitted)), most if right == drafts else right),
    )


def _is_determined(evidence: Evidence) -> bool:
    """Return whether rounds are known: reported, or such that no rounding could make them others (S-TOTAL-2)."""
    if _own(evidence):
        return True
    if evidence.scenario.dynamic or any(evidence.schedule.attempts.values()):
        return False
    return evidence.exact or not _may_differ(evidence)


def _may_differ(evidence: Evidence) -> bool:
    """Return whether rounding may make a choice of a real model another somewhere in the run."""
    reference = evidence.reference
    rounded = reference.rounded or reference
    if any(gap < CLOSE_EXPERTS for trace in (reference, rounded) for gap in trace.gaps.values()):
        return True
    for channel in _CHOICES:
        second = rounded.choices(channel)
        for key, choice in reference.choices(channel).items():
            other = second.get(key)
            if is_close(evidence.scenario, choice, other) or (other and other[0] != choice[0]):
                return True
    return False


CONTRACTS = (
    listed(
        "total.counted",
        _wrong,
        _CHANNELS,
        partial=_CHANNELS,
        also=("accept.correct_len", "round.drafts"),
        whole=False,
        by_round=False,
        concerns=_is_determined,
        cites="S-TOTAL-1, S-TOTAL-2",
        minimum="scenarios rounds_with_drafts accept_none accept_all",
    ),
)
