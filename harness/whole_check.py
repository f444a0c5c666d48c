"""Hold an engine to contracts of traces and kernels to theirs, as one report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from draftproof.harness.check import REAL, Checker, CheckReport, Progress
from draftproof.harness.kernel_runs import cases, verdicts
from draftproof.properties.contracts.base import Contract
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.table import PREFIX
from draftproof.properties.subject import Subject
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome, worst

KernelCalls = dict[str, tuple[KernelCase, ...]]
"""op -> the calls that it is held to its contract with"""
KERNEL_CALLS = 12
"""Calls that each kernel is held to its contract with."""


def checker(subject: Subject, contracts: Sequence[Contract], *, named: bool, real: bool) -> Checker:
    """Return a checker for contracts.

    Contracts that were asked for by name only have to reach their own minimum, and a real model runs less.
    """
    if named:
        return Checker(subject, contracts, work=(), each=None)
    return Checker(subject, contracts, each=REAL) if real else Checker(subject, contracts)


def kernel_calls(names: Iterable[str], seed: int, count: int) -> KernelCalls:
    """Draw the calls for contracts of kernels, before an engine is imported: that changes what is drawn."""
    ops = [name.removeprefix(PREFIX) for name in names]
    return {op: cases(op, seed, min(count, KERNEL_CALLS)) for op in ops}


def whole_check(
    of_traces: Checker, scenarios: Iterable[Scenario], calls: KernelCalls, seed: int, device: str, progress: Progress
) -> CheckReport:
    """Check scenarios and calls of kernels; without scenarios only kernels."""
    report = of_traces.check(scenarios, seed, progress)
    of_kernels = verdicts([f"{PREFIX}{op}" for op in calls], calls, device)
    contracts = (*(report.contracts if report.examples else ()), *of_kernels)
    counts = {**report.counts, "kernel_calls": sum(map(len, calls.values()))}
    verdict = worst([one.verdict for one in contracts])
    return msgspec.structs.replace(report, verdict=verdict, contracts=contracts, counts=counts)


def unless_skipped(report: CheckReport) -> CheckReport:
    """Return the report, inconclusive if a contract that was asked for by name could judge nothing."""
    skipped = report.verdict is Outcome.PASS and any(one.verdict is Outcome.SKIP for one in report.contracts)
    return msgspec.structs.replace(report, verdict=Outcome.INCONCLUSIVE) if skipped else report
