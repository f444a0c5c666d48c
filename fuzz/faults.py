"""The detection matrix: every fault against the scenarios of several seeds, beside a clean twin."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from draftproof.fuzz.catalogue import DraftSet, Fault, FaultFile, drafts_of, read_sources
from draftproof.fuzz.copies import write_copy
from draftproof.fuzz.kernels import NAMES, PREFIX
from draftproof.fuzz.patching import Stale
from draftproof.fuzz.trial import Aim, FaultOutcome, SeedResult
from draftproof.fuzz.zygote import Job, JobResult, Orders
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.values.base import Value
from draftproof.properties.values.verdict import Divergence, Outcome, worst

CLEAN = "(clean twin)"
PARALLEL = 2
DEADLINE = 60.0
_NOTICED = (FaultOutcome.DETECTED, FaultOutcome.CRASHED, FaultOutcome.HUNG, FaultOutcome.DETECTED_BY_OTHER)
_WORST_FIRST = (
    FaultOutcome.SURVIVED,
    FaultOutcome.DETECTED_BY_OTHER,
    FaultOutcome.HUNG,
    FaultOutcome.CRASHED,
    FaultOutcome.DETECTED,
)


class FaultResult(Value, frozen=True, kw_only=True):
    """One row of the matrix. `examples_to_detect` has one number a seed, null where the fault was not noticed.

    `divergence` is that of the first seed, `output_changed` says whether the emitted tokens changed there.
    """

    id: str
    outcome: FaultOutcome
    contract: str
    channel: str
    draft: str
    examples_to_detect: tuple[int | None, ...]
    clean_twin: Outcome
    outcomes: tuple[FaultOutcome, ...] = ()
    median: float | None = None
    inert_hunks: tuple[str, ...] = ()
    divergence: Divergence | None = None
    output_changed: bool = False
    detail: str = ""
    seconds: float = 0.0


class FaultReport(Value, frozen=True, kw_only=True):
    """The matrix. `verdict` is PASS if each fault is detected where its header says and the clean twin passes."""

    verdict: Outcome
    seeds: tuple[int, ...]
    examples: int
    device: str
    faults: tuple[FaultResult, ...]


Progress = Callable[[str], None]


def run_faults(
    files: Sequence[FaultFile],
    seeds: Sequence[int],
    examples: int,
    *,
    device: str = "cpu",
    progress: Progress = lambda _name: None,
    deadline: float = DEADLINE,
) -> FaultReport:
    """Try every fault on `examples` scenarios of each seed. Raises RuntimeError for errors of our own.

    No engine is imported here: the scenarios of a seed and draft are made once and handed on as values.
    """
    orders = Orders(
        seeds=tuple(seeds),
        examples=examples,
        scenarios=((),) * len(seeds),
        jobs=(),
        device=device,
        parallel=1 if device == "cuda" else PARALLEL,
        deadline=deadline,
    )
    with tempfile.TemporaryDirectory(prefix="draftproof-") as folder:
        groups, stale = _groups(files, Path(folder), device)
        done: dict[str, JobResult] = {}
        clean: dict[str, Outcome] = {}
        for group in groups:
            for result in _run(group, _with_scenarios(orders, group.draft)):
                done[result.id] = result
                progress(result.id)
            twin = _clean(done[CLEAN])
            clean |= {job.id: twin for job in group.jobs}
    results = tuple(
        _fault(file, done[file.fault.id], clean[file.fault.id])
        if file.fault.id in done
        else _stale(file, stale[file.fault.id], len(seeds))
        for file in files
    )
    verdict = _verdict(results)
    return FaultReport(verdict=verdict, seeds=tuple(seeds), examples=examples, device=device, faults=results)


@dataclass(frozen=True)
class _Group:
    """Jobs that share a zygote, a clean twin first. `draft`: that of the scenarios that they meet; None: they meet
    calls of kernels."""

    jobs: tuple[Job, ...]
    interpreted: bool
    draft: DraftSet | None


def _with_scenarios(orders: Orders, draft: DraftSet | None) -> Orders:
    """The orders of a group: scenarios of its draft, or none for one that meets kernels."""
    if draft is None:
        return orders
    lists = tuple(tuple(generate(seed, orders.examples, drafts_of(draft))) for seed in orders.seeds)
    return msgspec.structs.replace(orders, scenarios=lists)


def _groups(files: Sequence[FaultFile], root: Path, device: str) -> tuple[list[_Group], dict[str, str]]:
    """Groups by what the jobs meet, and why the other faults are stale. Raises BadPatch."""
    sources = read_sources()
    clean = write_copy(root / "clean", sources)
    jobs: dict[tuple[DraftSet | None, bool], list[Job]] = {}
    stale: dict[str, str] = {}
    for number, file in enumerate(files):
        fault = file.fault
        try:
            copy = write_copy(root / str(number), sources, file.hunks())
        except Stale as error:
            stale[fault.id] = str(error)
            continue
        ops = _ops(fault, device)
        aim = Aim(contract=fault.contract, channel=fault.channel)
        interpreted = fault.patches == "triton" and device == "cpu"
        job = Job(id=fault.id, folder=copy.folder, hunks=copy.hunks, aim=aim, ops=ops)
        jobs.setdefault((None if ops else fault.draft, interpreted), []).append(job)
    groups = []
    for (draft, interpreted), of_kind in jobs.items():
        ops = tuple(sorted({op for job in of_kind for op in job.ops}))
        twin = Job(id=CLEAN, folder=clean.folder, hunks=(), aim=Aim(), ops=ops)
        groups.append(_Group((twin, *of_kind), interpreted, draft))
    return groups, stale


def _ops(fault: Fault, device: str) -> tuple[str, ...]:
    """The kernels that a fault is tried on; none: it meets whole scenarios.

    Under the interpreter only kernels run, since it is too slow for an engine.
    """
    if fault.contract.startswith(PREFIX):
        return (fault.contract.removeprefix(PREFIX),)
    if fault.patches == "triton" and device == "cpu":
        return tuple(name.removeprefix(PREFIX) for name in NAMES)
    return ()


def _run(group: _Group, orders: Orders) -> Iterator[JobResult]:
    """On a GPU every job has a process of its own."""
    batches = [(job,) for job in group.jobs] if orders.device == "cuda" else [group.jobs]
    for batch in batches:
        yield from _zygote(msgspec.structs.replace(orders, jobs=tuple(batch)), group.interpreted)


def _zygote(orders: Orders, interpreted: bool) -> Iterator[JobResult]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **({"TRITON_INTERPRET": "1"} if interpreted else {})}
    # -P: the current folder may be the repository, whose kernels/ must not stand in for another package.
    command = [sys.executable, "-P", "-m", "draftproof.fuzz.zygote"]
    with _started(command, environment) as process:
        process.stdin.write(msgspec.json.encode(orders))
        process.stdin.close()
        seen = 0
        for line in process.stdout:
            result = msgspec.json.decode(line, type=JobResult)
            if result.error:
                raise RuntimeError(f"{result.id}: {result.error}")
            seen += 1
            yield result
        if process.wait() or seen != len(orders.jobs):
            raise RuntimeError(f"the zygote ended with {process.returncode} after {seen} of {len(orders.jobs)} jobs")


@contextmanager
def _started(command: list[str], environment: dict[str, str]) -> Iterator[Any]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()


def _clean(result: JobResult) -> Outcome:
    outcomes = {seed.outcome for seed in result.seeds}
    if outcomes == {FaultOutcome.SURVIVED}:
        return Outcome.PASS
    if FaultOutcome.HUNG in outcomes:
        return Outcome.HANG
    return Outcome.CRASH if FaultOutcome.CRASHED in outcomes else Outcome.FAIL


def _stale(file: FaultFile, why: str, seeds: int) -> FaultResult:
    fault = file.fault
    return FaultResult(
        id=fault.id,
        outcome=FaultOutcome.STALE,
        contract=fault.contract,
        channel=fault.channel,
        draft=fault.draft,
        examples_to_detect=(None,) * seeds,
        clean_twin=Outcome.SKIP,
        detail=why,
    )


def _fault(file: FaultFile, result: JobResult, clean: Outcome) -> FaultResult:
    fault = file.fault
    outcomes = tuple(seed.outcome for seed in result.seeds)
    counts = tuple(seed.examples for seed in result.seeds)
    shown = _shown(result.seeds)
    found = shown.divergence
    return FaultResult(
        id=fault.id,
        outcome=_worst(outcomes, file, result),
        contract=fault.contract or (found.contract if found else ""),
        channel=fault.channel or (found.channel if found else ""),
        draft=fault.draft,
        examples_to_detect=counts,
        clean_twin=clean,
        outcomes=outcomes,
        median=_median(counts),
        inert_hunks=result.inert,
        divergence=found,
        output_changed=shown.output_changed,
        detail=shown.detail,
        seconds=result.seconds,
    )


def _shown(seeds: tuple[SeedResult, ...]) -> SeedResult:
    """The result that a report shows: of the first seed that noticed as the fault's outcome says."""
    return min(seeds, key=lambda seed: _NOTICED.index(seed.outcome) if seed.outcome in _NOTICED else len(_NOTICED))


def _worst(outcomes: tuple[FaultOutcome, ...], file: FaultFile, result: JobResult) -> FaultOutcome:
    """A fault counts as what it is at its worst seed; if it never had any effect, it is inert."""
    worst = min(outcomes, key=_WORST_FIRST.index)
    all_inert = len(result.inert) == len(file.hunks())
    return FaultOutcome.INERT if worst is FaultOutcome.SURVIVED and all_inert else worst


def _median(counts: tuple[int | None, ...]) -> float | None:
    """Over seeds; a seed that noticed nothing counts as more than any number, and so may be the median."""
    middle = statistics.median([float("inf") if count is None else count for count in counts])
    return None if middle == float("inf") else middle


def _verdict(results: tuple[FaultResult, ...]) -> Outcome:
    outcomes = {result.outcome for result in results}
    if FaultOutcome.STALE in outcomes:
        return Outcome.ERROR
    clean = worst([result.clean_twin for result in results]) if results else Outcome.PASS
    if clean is not Outcome.PASS:
        return clean
    if outcomes - {FaultOutcome.DETECTED, FaultOutcome.CRASHED, FaultOutcome.HUNG}:
        return Outcome.FAIL
    return Outcome.PASS if results else Outcome.INCONCLUSIVE
