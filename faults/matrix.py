"""The detection matrix as a value: one row a fault, what both kinds of test saw of it, and what that makes in all."""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import msgspec

from draftproof.faults.baseline import Baseline
from draftproof.faults.trial import FaultOutcome
from draftproof.harness.machine import commit
from draftproof.properties.lib.base import Value
from draftproof.properties.strategies.version import STRATEGIES_VERSION
from draftproof.properties.values.verdict import Divergence, Outcome

NOTICED = (FaultOutcome.DETECTED, FaultOutcome.CRASHED, FaultOutcome.HUNG, FaultOutcome.DETECTED_BY_OTHER)
UNTRIED = (FaultOutcome.ABSENT, FaultOutcome.STALE)
LOW, HIGH = 0.05, 0.95
_PACKAGES = ("draftproof", "torch", "triton", "hypothesis")


class Spread(Value, frozen=True, kw_only=True):
    """Median and 90 % interval over seeds; null is more than was tried."""

    median: float | None = None
    low: float | None = None
    high: float | None = None


class FaultResult(Value, frozen=True, kw_only=True):
    """One row of the matrix.

    `examples_to_detect` and `seconds_to_detect` have one number a seed, null where the fault was not noticed; `median`
    is the median of the examples.

    `divergence` is the first seed's. `baseline`: what the baseline tests saw. `whole`: the result of a kernel's fault
    in whole scenarios, if it met them. `explained`: why it survives where it does. `nodes` are the nodes of a cluster
    that it ran on. `named`: whether the fault names a contract or a channel; `contract` and `channel` are else those
    that noticed it.
    """

    id: str
    outcome: FaultOutcome
    contract: str
    channel: str
    draft: str
    examples_to_detect: tuple[int | None, ...]
    clean_twin: Outcome
    patches: str = ""
    outcomes: tuple[FaultOutcome, ...] = ()
    median: float | None = None
    examples: Spread = Spread()
    seconds_to_detect: tuple[float | None, ...] = ()
    time: Spread = Spread()
    baseline: Baseline | None = None
    whole: FaultOutcome | None = None
    inert_hunks: tuple[str, ...] = ()
    divergence: Divergence | None = None
    detail: str = ""
    explained: str = ""
    seconds: float = 0.0
    nodes: tuple[str, ...] = ()
    named: bool = True

    @property
    def noticed(self) -> bool:
        """Whether any test of ours noticed it, at every seed."""
        return self.outcome in NOTICED


class Totals(Value, frozen=True, kw_only=True):
    """How many of the `faults` that were tried ended how.

    `detected` by the named contract in the named channel, `noticed` in whatever way. `unnamed` of them name neither, so
    that they can be noticed only.

    `measured` of them met the usual tests, too: of these `ours` were noticed by us, `output` and `acceptance` by those
    tests, `either` by one of them at least.
    """

    faults: int
    detected: int
    noticed: int
    survived: int
    measured: int = 0
    ours: int = 0
    output: int = 0
    acceptance: int = 0
    either: int = 0
    unnamed: int = 0

    @property
    def named(self) -> int:
        """How many faults can be detected as named."""
        return self.faults - self.unnamed


class MadeWith(Value, frozen=True, kw_only=True):
    """With which version of what a matrix was made."""

    package: str
    version: str


class FaultReport(Value, frozen=True, kw_only=True):
    """The matrix of one lane.

    `verdict` is PASS if each fault is detected where its header says and the clean twin passes; a fault that is stale
    or inert is an error.

    `strategies` is the version of what is generated.
    """

    verdict: Outcome
    seeds: tuple[int, ...]
    examples: int
    device: str
    faults: tuple[FaultResult, ...]
    totals: Totals
    strategies: int = STRATEGIES_VERSION
    versions: tuple[MadeWith, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of a cluster that any fault ran on, sorted."""
        return tuple(sorted({node for fault in self.faults for node in fault.nodes}))


class Lanes(Value, frozen=True, kw_only=True):
    """The same catalogue on the CPU (host graphs, eager engine, interpreted kernels) and on a GPU, if it ran there."""

    cpu: FaultReport
    gpu: FaultReport | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of clusters that any of it ran on, sorted."""
        return tuple(sorted({node for report in self.reports.values() for node in report.nodes}))

    @property
    def reports(self) -> dict[str, FaultReport]:
        """Name of the lane -> its report."""
        return {"CPU": self.cpu, **({"GPU": self.gpu} if self.gpu else {})}

    @property
    def ids(self) -> tuple[str, ...]:
        """Every fault of any lane, sorted."""
        return tuple(sorted({fault.id for report in self.reports.values() for fault in report.faults}))

    @property
    def once(self) -> Totals:
        """Sums in which every fault counts once: noticed if it is in each lane that tried it."""
        return totals([self._one(name) for name in self.ids])

    def _one(self, name: str) -> FaultResult:
        """Return a fault at its worst lane, with what the usual tests saw of it anywhere."""
        found = list(self.of(name).values())
        tried = [one for one in found if one.outcome not in UNTRIED] or found
        least = next((one for one in tried if not one.noticed), tried[0])
        return msgspec.structs.replace(least, baseline=self.baseline(name))

    def baseline(self, name: str) -> Baseline | None:
        """Return what the usual tests saw of a fault, in the first lane where they ran."""
        return next((one.baseline for one in self.of(name).values() if one.baseline), None)

    def of(self, name: str) -> dict[str, FaultResult]:
        """Lane -> the row of a fault, where there is one."""
        return {lane: one for lane, report in self.reports.items() for one in report.faults if one.id == name}


def spread(values: Iterable[float | None]) -> Spread:
    """Median and 90 % interval; None counts as more than any number.

    The bounds are order statistics: the least value that 5 % of all do not exceed, and the least that 95 % do not. Of
    fewer than 20 values these are the least and the greatest.
    """
    ordered = sorted(math.inf if value is None else value for value in values)
    if not ordered:
        return Spread()
    low, high = (ordered[math.ceil(share * len(ordered)) - 1] for share in (LOW, HIGH))
    return Spread(median=_finite(statistics.median(ordered)), low=_finite(low), high=_finite(high))


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else round(value, 4)


def totals(results: Sequence[FaultResult]) -> Totals:
    """Return sums over the faults that were tried."""
    tried = [result for result in results if result.outcome not in UNTRIED]
    measured = [(result, result.baseline) for result in tried if result.baseline is not None]
    return Totals(
        faults=len(tried),
        detected=sum(result.named and result.outcome is FaultOutcome.DETECTED for result in tried),
        noticed=sum(result.noticed for result in tried),
        survived=sum(result.outcome is FaultOutcome.SURVIVED for result in tried),
        measured=len(measured),
        ours=sum(result.noticed for result, _ in measured),
        output=sum(baseline.output for _, baseline in measured),
        acceptance=sum(baseline.acceptance for _, baseline in measured),
        either=sum(baseline.output or baseline.acceptance for _, baseline in measured),
        unnamed=sum(not result.named for result in tried),
    )


def versions() -> tuple[MadeWith, ...]:
    """Return what the matrix is made with here, with the commit if that is a checkout; nothing of the machine."""
    found = [MadeWith(package="python", version=platform.python_version())]
    if at := commit():
        found.append(MadeWith(package="commit", version=at))
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found.append(MadeWith(package=package, version=version(package)))
    return tuple(found)
