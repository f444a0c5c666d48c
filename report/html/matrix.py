"""What a report says of the faults of a detection matrix; the template draws one table a lane."""

from __future__ import annotations

from typing import NamedTuple

from draftproof.faults.matrix import FaultResult, Spread
from draftproof.faults.trial import FaultOutcome

MEANINGS = {
    FaultOutcome.STALE: "does not apply, or names what is not there: an error",
    FaultOutcome.INERT: "never had an effect: an error",
    FaultOutcome.SURVIVED: "nobody noticed",
    FaultOutcome.DETECTED_BY_OTHER: "noticed, but not by the contract or in the channel of its header",
    FaultOutcome.HUNG: "no answer within the deadline",
    FaultOutcome.CRASHED: "the engine raised or died",
    FaultOutcome.DETECTED: "its contract failed, in its channel",
    FaultOutcome.ABSENT: "what it changes does not run in this lane",
}
"""What became of a fault, in words; what needs a look stands first."""
GOOD = frozenset({FaultOutcome.DETECTED, FaultOutcome.CRASHED, FaultOutcome.HUNG})
LANES = {"cpu": "CPU lane", "cuda": "GPU lane"}


class Number(NamedTuple):
    """A cell that sorts by number; `sort` is "" for one that was never reached, which sorts last."""

    text: str
    sort: str


class CaughtBy(NamedTuple):
    """What one of the baseline tests made of a fault: "seen", "not seen", "crash" or "" (not measured), and why."""

    text: str
    why: str = ""


def number(spread: Spread, form: str) -> Number:
    """Return the median, with the 90 % interval where that is more than the median."""
    if spread.median is None:
        return Number("never" if spread.low is None else f"∞ ({spread.low:{form}}..∞)", "")
    middle = format(spread.median, form)
    low, high = ("∞" if end is None else format(end, form) for end in (spread.low, spread.high))
    return Number(middle if low == high == middle else f"{middle} ({low}..{high})", f"{spread.median}")


def usual_tests(fault: FaultResult) -> tuple[CaughtBy, CaughtBy]:
    """Return what comparing the output and mean acceptance made of a fault."""
    baseline = fault.baseline
    if baseline is None:
        return CaughtBy(""), CaughtBy("")
    if baseline.crash:
        return CaughtBy("crash", baseline.crash), CaughtBy("crash", baseline.crash)
    means = ["-" if mean is None else f"{mean:.3f}" for mean in (baseline.mean, baseline.expected)]
    changed = f"the output of {baseline.changed} of {baseline.scenarios} scenarios was wrong"
    accepted = f"{means[0]} drafts accepted a round; {means[1]} without the fault"
    seen = ["seen" if test else "not seen" for test in (baseline.output, baseline.acceptance)]
    return CaughtBy(seen[0], changed), CaughtBy(seen[1], accepted)


def note(fault: FaultResult) -> str:
    """Return what is to be said of a fault beside its numbers."""
    notes = [fault.explained, fault.detail]
    if fault.whole is not None:
        notes.append(f"in whole scenarios: {fault.whole.value.replace('_', ' ')}")
    if fault.clean_twin.value not in ("PASS", "SKIP"):
        notes.append(f"clean twin {fault.clean_twin}")
    if fault.inert_hunks:
        notes.append(f"without effect: {', '.join(fault.inert_hunks)}")
    return "; ".join(text for text in notes if text)
