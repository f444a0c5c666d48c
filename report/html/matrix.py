"""A detection matrix as a report shows it: one table a lane, faults by what became of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from draftproof.faults.baseline import Baseline
from draftproof.faults.matrix import FaultReport, FaultResult, Spread, Totals
from draftproof.faults.trial import FaultOutcome
from draftproof.report.html.words import share

# What needs a look stands first.
_ORDER = (
    (FaultOutcome.STALE, "does not apply: an error"),
    (FaultOutcome.INERT, "never had an effect: an error"),
    (FaultOutcome.SURVIVED, "nobody noticed"),
    (FaultOutcome.DETECTED_BY_OTHER, "noticed, but not by the contract or in the channel of its header"),
    (FaultOutcome.HUNG, "no answer within the deadline"),
    (FaultOutcome.CRASHED, "the engine raised or died"),
    (FaultOutcome.DETECTED, "its contract failed, in its channel"),
    (FaultOutcome.ABSENT, "what it patches does not run in this lane"),
)
_GOOD = frozenset({FaultOutcome.DETECTED, FaultOutcome.CRASHED, FaultOutcome.HUNG})
LANES = {"cpu": "CPU lane", "cuda": "GPU lane"}


Share = tuple[str, str, str]
"""What, its share in per cent, and how many of how many."""


@dataclass(frozen=True)
class Number:
    """A cell that sorts by number; `sort` is "" for one that was never reached, which sorts last."""

    text: str
    sort: str


@dataclass(frozen=True)
class CaughtBy:
    """What one of the baseline tests made of a fault: "seen", "not seen", "crash" or "" (not measured), and why."""

    text: str
    why: str = ""


@dataclass(frozen=True)
class FaultEntry:
    id: str
    draft: str
    contract: str
    channel: str
    examples: Number
    seconds: Number
    output: CaughtBy
    acceptance: CaughtBy
    note: str


@dataclass(frozen=True)
class FaultGroup:
    """The faults of one outcome."""

    outcome: str
    meaning: str
    good: bool
    entries: tuple[FaultEntry, ...]


@dataclass(frozen=True)
class Lane:
    """The matrix of one lane.

    `ours`: what we notice; `baseline`: the same beside what those tests notice, of the `measured` faults that met both.
    """

    name: str
    verdict: str
    made: tuple[tuple[str, str], ...]
    ours: tuple[Share, ...]
    baseline: tuple[Share, ...]
    measured: int
    groups: tuple[FaultGroup, ...]


def lane(report: FaultReport) -> Lane:
    """One lane as it is shown."""
    groups = []
    for outcome, meaning in _ORDER:
        faults = [fault for fault in report.faults if fault.outcome is outcome]
        if faults:
            entries = tuple(map(_entry, sorted(faults, key=lambda fault: fault.id)))
            groups.append(FaultGroup(outcome.value.replace("_", " "), meaning, outcome in _GOOD, entries))
    made = {
        "Seeds": ", ".join(map(str, report.seeds)),
        "Scenarios a seed": str(report.examples),
        "Strategies": f"version {report.strategies}",
        "Made with": ", ".join(f"{one.package} {one.version}" for one in report.versions),
    }
    name = LANES.get(report.device, report.device)
    facts = tuple((what, text) for what, text in made.items() if text)
    sums = report.totals
    return Lane(
        name=name,
        verdict=report.verdict.value,
        made=facts,
        ours=tuple(_ours(sums)),
        baseline=tuple(_beside(sums)),
        measured=sums.measured,
        groups=tuple(groups),
    )


def _ours(sums: Totals) -> Iterable[Share]:
    yield from _shares(sums.faults, (("detected as named", sums.detected), ("noticed in any way", sums.noticed)))


def _beside(sums: Totals) -> Iterable[Share]:
    """Ours and the baseline tests, on the faults that met both."""
    parts = (
        ("noticed here", sums.ours),
        ("by comparing the output", sums.output),
        ("by mean acceptance within 5 %", sums.acceptance),
        ("by either of these two", sums.either),
    )
    yield from _shares(sums.measured, parts if sums.measured else ())


def _shares(whole: int, parts: Iterable[tuple[str, int]]) -> Iterable[Share]:
    for what, part in parts:
        yield what, share(part, whole), f"{part} of {whole}"


def _entry(fault: FaultResult) -> FaultEntry:
    notes = [fault.explained, fault.detail]
    if fault.whole is not None:
        notes.append(f"in whole scenarios: {fault.whole.value.replace('_', ' ')}")
    if fault.clean_twin.value not in ("PASS", "SKIP"):
        notes.append(f"clean twin {fault.clean_twin}")
    if fault.inert_hunks:
        notes.append(f"without effect: {', '.join(fault.inert_hunks)}")
    output, acceptance = _baseline(fault.baseline)
    return FaultEntry(
        id=fault.id,
        draft=fault.draft,
        contract=fault.contract,
        channel=fault.channel,
        examples=_spread(fault.examples, "g"),
        seconds=_spread(fault.time, ".2f"),
        output=output,
        acceptance=acceptance,
        note="; ".join(note for note in notes if note),
    )


def _spread(spread: Spread, form: str) -> Number:
    """Return the median, with the 90 % interval where that is more than the median."""
    if spread.median is None:
        return Number("never" if spread.low is None else f"∞ ({spread.low:{form}}..∞)", "")
    middle = format(spread.median, form)
    low, high = ("∞" if end is None else format(end, form) for end in (spread.low, spread.high))
    return Number(middle if low == high == middle else f"{middle} ({low}..{high})", f"{spread.median}")


def _baseline(baseline: Baseline | None) -> tuple[CaughtBy, CaughtBy]:
    if baseline is None:
        return CaughtBy(""), CaughtBy("")
    if baseline.crash:
        return CaughtBy("crash", baseline.crash), CaughtBy("crash", baseline.crash)
    means = ["-" if mean is None else f"{mean:.3f}" for mean in (baseline.mean, baseline.expected)]
    changed = f"the output of {baseline.changed} of {baseline.scenarios} scenarios was wrong"
    accepted = f"{means[0]} drafts accepted a round; {means[1]} without the fault"
    return _seen(baseline.output, changed), _seen(baseline.acceptance, accepted)


def _seen(seen: bool, why: str) -> CaughtBy:
    return CaughtBy("seen" if seen else "not seen", why)
