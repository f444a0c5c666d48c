"""The detection matrix: every fault against the scenarios of several seeds, beside a clean twin."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from draftproof.fuzz.catalogue import FaultFile, read_sources
from draftproof.fuzz.copies import write_copy
from draftproof.fuzz.patching import Stale
from draftproof.fuzz.trial import Aim, FaultOutcome, SeedResult
from draftproof.fuzz.zygote import Job, JobResult, Orders
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.values.base import Value
from draftproof.properties.values.verdict import Divergence, Outcome

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


class FaultResult(Value):
    """One row of the matrix. `examples_to_detect` has one number a seed, null where the fault was not noticed.

    `divergence` is that of the first seed, `output_changed` says whether the emitted tokens changed there.
    """

    id: str
    outcome: FaultOutcome
    contract: str
    channel: str
    examples_to_detect: tuple[int | None, ...]
    clean_twin: Outcome
    outcomes: tuple[FaultOutcome, ...] = ()
    median: float | None = None
    inert_hunks: tuple[str, ...] = ()
    divergence: Divergence | None = None
    output_changed: bool = False
    detail: str = ""
    seconds: float = 0.0


class FaultReport(Value):
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

    No engine is imported here: the scenarios of a seed are made once and handed on as values.
    """
    scenarios = tuple(tuple(generate(seed, examples)) for seed in seeds)
    with tempfile.TemporaryDirectory(prefix="draftproof-") as folder:
        jobs, stale = _jobs(files, Path(folder))
        done: dict[str, JobResult] = {}
        for batch in _batches(jobs, files, device):
            orders = Orders(
                seeds=tuple(seeds),
                scenarios=scenarios,
                jobs=tuple(batch),
                device=device,
                parallel=1 if device == "cuda" else PARALLEL,
                deadline=deadline,
            )
            interpreted = device == "cpu" and batch[0].id in _triton(files)
            for result in _zygote(orders, interpreted):
                done[result.id] = result
                progress(result.id)
    clean = _clean(done[CLEAN])
    results = tuple(_fault(file, done.get(file.fault.id), stale, clean, len(seeds)) for file in files)
    return FaultReport(
        verdict=_verdict(results, clean), seeds=tuple(seeds), examples=examples, device=device, faults=results
    )


def _jobs(files: Sequence[FaultFile], root: Path) -> tuple[list[Job], dict[str, str]]:
    """The jobs, clean twin first, and why the others are stale. Raises BadPatch."""
    sources = read_sources()
    clean = write_copy(root / "clean", sources)
    jobs, stale = [Job(id=CLEAN, folder=clean.folder, hunks=(), aim=Aim())], {}
    for number, file in enumerate(files):
        try:
            copy = write_copy(root / str(number), sources, file.hunks())
        except Stale as error:
            stale[file.fault.id] = str(error)
            continue
        aim = Aim(contract=file.fault.contract, channel=file.fault.channel)
        jobs.append(Job(id=file.fault.id, folder=copy.folder, hunks=copy.hunks, aim=aim))
    return jobs, stale


def _triton(files: Sequence[FaultFile]) -> set[str]:
    return {file.fault.id for file in files if file.fault.patches == "triton"}


def _batches(jobs: list[Job], files: Sequence[FaultFile], device: str) -> list[list[Job]]:
    """Jobs that share a zygote: on a GPU every job has a process of its own."""
    if device == "cuda":
        return [[job] for job in jobs]
    triton = _triton(files)
    groups = [[job for job in jobs if job.id not in triton], [job for job in jobs if job.id in triton]]
    return [group for group in groups if group]


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


def _fault(file: FaultFile, result: JobResult | None, stale: dict[str, str], clean: Outcome, seeds: int) -> FaultResult:
    fault = file.fault
    if result is None:
        return FaultResult(
            id=fault.id,
            outcome=FaultOutcome.STALE,
            contract=fault.contract,
            channel=fault.channel,
            examples_to_detect=(None,) * seeds,
            clean_twin=clean,
            detail=stale[fault.id],
        )
    outcomes = tuple(seed.outcome for seed in result.seeds)
    counts = tuple(seed.examples for seed in result.seeds)
    shown = _shown(result.seeds)
    return FaultResult(
        id=fault.id,
        outcome=_worst(outcomes, file, result),
        contract=fault.contract or (shown.divergence.contract if shown.divergence else ""),
        channel=fault.channel or (shown.divergence.channel if shown.divergence else ""),
        examples_to_detect=counts,
        clean_twin=clean,
        outcomes=outcomes,
        median=_median(counts),
        inert_hunks=result.inert,
        divergence=shown.divergence,
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


def _verdict(results: tuple[FaultResult, ...], clean: Outcome) -> Outcome:
    outcomes = {result.outcome for result in results}
    if FaultOutcome.STALE in outcomes:
        return Outcome.ERROR
    if clean is not Outcome.PASS:
        return clean
    if outcomes - {FaultOutcome.DETECTED, FaultOutcome.CRASHED, FaultOutcome.HUNG}:
        return Outcome.FAIL
    return Outcome.PASS if results else Outcome.INCONCLUSIVE
