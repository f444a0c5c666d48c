"""Faults put into kernels of packages by changes of their source text: each must be found by its kernel's contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from draftproof.harness.bound_check import KernelsAsked, Release, runs
from draftproof.properties.formats.kernel_binding import BindingError, KernelBinding
from draftproof.properties.formats.kernel_fault import FaultHeld, FaultyRelease, KernelFault, KernelFaultReport
from draftproof.properties.formats.kernel_report import KernelHeld
from draftproof.properties.values.verdict import Outcome
from draftproof.subjects.kernels.faults import faults_of

Table = Mapping[str, Sequence[KernelFault]]
_FOUND = (Outcome.FAIL, Outcome.CRASH, Outcome.HANG)


def table_of(module: str, bindings: Sequence[KernelBinding]) -> Table:
    """Return the faults of these bindings of a package. Raises BindingError if there are none."""
    table = faults_of(module)
    chosen = {one.name: table[one.name] for one in bindings if one.name in table}
    if not chosen:
        raise BindingError(f"invalid --impl {module!r}: expected kernels that faults are listed for, as of sglang")
    return chosen


def put_faults(
    asked: KernelsAsked, table: Table, releases: Sequence[Release], tell: Callable[[Release, FaultHeld], None]
) -> KernelFaultReport:
    """Hold the kernels that have faults to their contracts: as they are, and with each fault by itself."""
    rows = tuple(_of_release(asked, table, release, tell) for release in releases)
    return KernelFaultReport(
        verdict=_verdict(rows),
        implementation=asked.module,
        device=asked.device,
        seed=asked.seed,
        examples=asked.examples,
        releases=rows,
    )


def _of_release(
    asked: KernelsAsked, table: Table, release: Release, tell: Callable[[Release, FaultHeld], None]
) -> FaultyRelease:
    wanted = [
        (binding, fault)
        for binding in asked.bindings
        if binding.name in table
        for fault in (None, *table[binding.name])
    ]
    clean, faults = dict[int, KernelHeld](), dict[int, FaultHeld]()
    for place, held in runs(asked, release, wanted):
        fault = wanted[place][1]
        if fault is None:
            clean[place] = held
        else:
            faults[place] = _held(fault, held)
            tell(release, faults[place])
    return FaultyRelease(
        package=release.package,
        version=release.version,
        clean=tuple(clean[place] for place in sorted(clean)),
        faults=tuple(faults[place] for place in sorted(faults)),
    )


def _held(fault: KernelFault, held: KernelHeld) -> FaultHeld:
    return FaultHeld(
        kernel=held.name,
        kind=fault.kind,
        wrong=fault.wrong,
        verdict=held.verdict,
        found=held.verdict in _FOUND,
        calls=held.calls,
        first=held.first,
        reason=held.reason,
    )


def _verdict(rows: Sequence[FaultyRelease]) -> Outcome:
    """Return FAIL if a clean twin fails or a fault is not found; what a release lacks, or cannot run, is neutral."""
    clean = [one.verdict for row in rows for one in row.clean]
    faulty = [one.verdict for row in rows for one in row.faults]
    if any(one in _FOUND for one in clean) or Outcome.PASS in faulty:
        return Outcome.FAIL
    unknown = {Outcome.INCONCLUSIVE, Outcome.ERROR}
    if unknown & {*clean, *faulty} or not any(one in _FOUND for one in faulty):
        return Outcome.INCONCLUSIVE
    return Outcome.PASS
