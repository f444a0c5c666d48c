"""Rows of the matrix, from what fork servers say of a fault and of its clean twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from draftproof.faults.baseline import Baseline, compare
from draftproof.faults.catalogue import FaultFile
from draftproof.faults.matrix import NOTICED, FaultResult, spread
from draftproof.faults.orders import TaskResult
from draftproof.faults.trial import FaultOutcome
from draftproof.properties.values.verdict import Outcome, worst

_WORST_FIRST = (
    FaultOutcome.STALE,
    FaultOutcome.SURVIVED,
    FaultOutcome.DETECTED_BY_OTHER,
    FaultOutcome.HUNG,
    FaultOutcome.CRASHED,
    FaultOutcome.DETECTED,
)
_CLEAN = {
    FaultOutcome.SURVIVED: Outcome.PASS,
    FaultOutcome.HUNG: Outcome.HANG,
    FaultOutcome.CRASHED: Outcome.CRASH,
}


class Beside(NamedTuple):
    """What became of a task, and of its clean twin."""

    result: TaskResult
    twin: TaskResult

    @property
    def clean(self) -> Outcome:
        """The verdict of the clean twin."""
        return worst([_CLEAN.get(seed.outcome, Outcome.FAIL) for seed in self.twin.seeds])

    @property
    def baseline(self) -> Baseline | None:
        """What the baseline tests say; None if they did not run."""
        run, twin = self.result.baseline, self.twin.baseline
        return None if run is None or twin is None else compare(run, twin)


def untried(file: FaultFile, outcome: FaultOutcome, why: str, seeds: int) -> FaultResult:
    """Return the row of a fault that did not run, and why."""
    return _row(file, outcome=outcome, examples_to_detect=(None,) * seeds, clean_twin=Outcome.SKIP, detail=why)


def _row(file: FaultFile, **fields: Any) -> FaultResult:
    header = {name: getattr(file.fault, name) for name in ("id", "draft", "explained", "contract", "channel")}
    named = bool(file.fault.contract or file.fault.channel)
    return FaultResult(**{**header, "patches": file.patches, "named": named, **fields})


def tried(file: FaultFile, met: Beside, whole: Beside | None) -> FaultResult:
    """Return the row of a fault; `whole`: what became of a kernel's fault in whole scenarios."""
    fault, result = file.fault, met.result
    counts = tuple(seed.examples for seed in result.seeds)
    seconds = tuple(seed.seconds for seed in result.seeds)
    # A stale one says why, else it is of the first seed that noticed as the fault's outcome says.
    order = (FaultOutcome.STALE, *NOTICED)
    shown = min(result.seeds, key=lambda seed: (*order, seed.outcome).index(seed.outcome))
    found = shown.divergence
    examples = spread(counts)
    return _row(
        file,
        outcome=_outcome(file, result),
        contract=fault.contract or (found.contract if found else ""),
        channel=fault.channel or (found.channel if found else ""),
        examples_to_detect=counts,
        clean_twin=worst([one.clean for one in (met, whole) if one is not None]),
        outcomes=tuple(seed.outcome for seed in result.seeds),
        median=examples.median,
        examples=examples,
        seconds_to_detect=seconds,
        time=spread(seconds),
        baseline=(whole or met).baseline,
        whole=_least(whole.result) if whole else None,
        inert_hunks=result.inert,
        divergence=found,
        detail=shown.detail,
        seconds=result.seconds,
        nodes=tuple(sorted({*result.nodes, *(whole.result.nodes if whole else ())})),
    )


def _least(result: TaskResult) -> FaultOutcome:
    return min((seed.outcome for seed in result.seeds), key=_WORST_FIRST.index)


def _outcome(file: FaultFile, result: TaskResult) -> FaultOutcome:
    """Return what a fault counts as.

    It counts as what it is at its worst seed. If it never had any effect, it is inert, even if it crashed: the patch
    then cannot run.
    """
    least = _least(result)
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
