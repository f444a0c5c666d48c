"""Rows of the matrix, from what fork servers say of a fault and of its clean twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from draftproof.faults.baseline import Baseline, compare
from draftproof.faults.catalogue import Fault, FaultFile
from draftproof.faults.matrix import NOTICED, FaultResult, spread
from draftproof.faults.orders import TaskResult
from draftproof.faults.trial import FaultOutcome, SeedResult
from draftproof.properties.values.verdict import Outcome, worst

_WORST_FIRST = (
    FaultOutcome.SURVIVED,
    FaultOutcome.DETECTED_BY_OTHER,
    FaultOutcome.HUNG,
    FaultOutcome.CRASHED,
    FaultOutcome.DETECTED,
)


class Beside(NamedTuple):
    """What became of a task, and of its clean twin."""

    result: TaskResult
    twin: TaskResult


def _clean(result: TaskResult) -> Outcome:
    outcomes = {seed.outcome for seed in result.seeds}
    if outcomes == {FaultOutcome.SURVIVED}:
        return Outcome.PASS
    if FaultOutcome.HUNG in outcomes:
        return Outcome.HANG
    return Outcome.CRASH if FaultOutcome.CRASHED in outcomes else Outcome.FAIL


def untried(fault: Fault, outcome: FaultOutcome, why: str, seeds: int) -> FaultResult:
    """Return the row of a fault that did not run, and why."""
    return FaultResult(
        **_header(fault),
        contract=fault.contract,
        channel=fault.channel,
        outcome=outcome,
        examples_to_detect=(None,) * seeds,
        clean_twin=Outcome.SKIP,
        detail=why,
    )


def _header(fault: Fault) -> dict[str, Any]:
    return {name: getattr(fault, name) for name in ("id", "draft", "patches", "explained")}


def tried(file: FaultFile, met: Beside, whole: Beside | None) -> FaultResult:
    """Return the row of a fault; `whole`: what became of a kernel's fault in whole scenarios."""
    fault, result = file.fault, met.result
    outcomes = tuple(seed.outcome for seed in result.seeds)
    counts = tuple(seed.examples for seed in result.seeds)
    seconds = tuple(seed.seconds for seed in result.seeds)
    shown = _shown(result.seeds)
    found = shown.divergence
    examples = spread(counts)
    twins = [_clean(one.twin) for one in (met, whole) if one is not None]
    return FaultResult(
        **_header(fault),
        outcome=_outcome(outcomes, file, result),
        contract=fault.contract or (found.contract if found else ""),
        channel=fault.channel or (found.channel if found else ""),
        examples_to_detect=counts,
        clean_twin=worst(twins),
        outcomes=outcomes,
        median=examples.median,
        examples=examples,
        seconds_to_detect=seconds,
        time=spread(seconds),
        baseline=_baseline(whole or met),
        whole=min((seed.outcome for seed in whole.result.seeds), key=_WORST_FIRST.index) if whole else None,
        inert_hunks=result.inert,
        divergence=found,
        detail=shown.detail,
        seconds=result.seconds,
    )


def _baseline(met: Beside) -> Baseline | None:
    run, twin = met.result.baseline, met.twin.baseline
    return None if run is None or twin is None else compare(run, twin)


def _shown(seeds: tuple[SeedResult, ...]) -> SeedResult:
    """Return the result that a report shows: of the first seed that noticed as the fault's outcome says."""
    return min(seeds, key=lambda seed: NOTICED.index(seed.outcome) if seed.outcome in NOTICED else len(NOTICED))


def _outcome(outcomes: tuple[FaultOutcome, ...], file: FaultFile, result: TaskResult) -> FaultOutcome:
    """Return what a fault counts as.

    What it is at its worst seed; if it never had any effect, it is inert: a crash then is that of a patch which cannot
    run.
    """
    least = min(outcomes, key=_WORST_FIRST.index)
    all_inert = len(result.inert) == len(file.hunks())
    unnoticed = least in (FaultOutcome.SURVIVED, FaultOutcome.CRASHED, FaultOutcome.HUNG)
    return FaultOutcome.INERT if unnoticed and all_inert else least


def verdict_of(results: Sequence[FaultResult]) -> Outcome:
    """Return the verdict of a matrix.

    A stale or inert fault says nothing of the suite, and is an error of the catalogue.
    """
    outcomes = {result.outcome for result in results} - {FaultOutcome.ABSENT}
    if outcomes & {FaultOutcome.STALE, FaultOutcome.INERT}:
        return Outcome.ERROR
    if not outcomes:
        return Outcome.INCONCLUSIVE
    clean = worst([result.clean_twin for result in results])
    if clean is not Outcome.PASS:
        return clean
    return Outcome.FAIL if outcomes - {FaultOutcome.DETECTED, FaultOutcome.CRASHED, FaultOutcome.HUNG} else Outcome.PASS
