"""Running the detection matrix: every fault against the scenarios of several seeds, beside a clean twin."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from draftproof.faults.baseline import unsteered
from draftproof.faults.catalogue import Fault, FaultFile, read_sources
from draftproof.faults.checkpoints import Checkpoints, tiny
from draftproof.faults.matrix import FaultReport, FaultResult, totals, versions
from draftproof.faults.matrix_rows import Beside, tried, untried, verdict_of
from draftproof.faults.named import validate_names
from draftproof.faults.orders import WHOLE, Batch, Task, TaskResult, joined, twin_id, twins_of
from draftproof.faults.patched_sources import write_copy, write_fault
from draftproof.faults.patching import StalePatchError
from draftproof.faults.served import ForkServer, Serve
from draftproof.faults.trial import Expectation, FaultOutcome
from draftproof.harness.side_by_side import SideBySide
from draftproof.properties.kernels.table import KERNEL_CONTRACTS, KERNEL_PREFIX
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.values.drafts import DraftSet, drafts_of
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome

_PARALLEL = {"cpu": 2, "cuda": 12}
_DEADLINE = {"cpu": 60.0, "cuda": 180.0}
"""By device: how many faults run at a time, and the seconds that an example may take."""
_LANE = 4
"""So many faults run beside each other in a lane, at least, where there are more places than these."""
_FEW_TASKS = 16
"""A group of more tasks runs by itself on a CPU."""
Progress = Callable[[str], None]


class InterruptedRunError(DraftproofError):
    """A run was interrupted; `report` has the faults that had results by then, of all that were asked for."""

    def __init__(self, report: FaultReport, faults: int) -> None:
        self.report, self.faults = report, faults
        super().__init__(f"interrupted: {len(report.faults)} of {faults} faults ran")


def run_faults(
    files: Sequence[FaultFile],
    seeds: Sequence[int],
    examples: int,
    *,
    device: str = "cpu",
    baseline: bool = False,
    parallel: int | None = None,
    progress: Progress = lambda _name: None,
    deadline: float | None = None,
    checkpoints: Checkpoints | None = None,
    serve: Serve | None = None,
    keep: Callable[[Serve], Serve] = lambda serve: serve,
) -> FaultReport:
    """Try every fault on `examples` scenarios of each seed.

    Raises RuntimeError for errors of our own, and InterruptedRunError for KeyboardInterrupt.

    With `baseline` each also meets as many unsteered scenarios, once: on a GPU those are faults of kernels only, as the
    others show the same on a CPU. `checkpoints`: those that all faults meet, in place of their own.
    `parallel`: how many faults at a time, `deadline`: seconds that an example may take. `serve`: what runs batches, if
    not a fork server of this call; `keep` makes of it what also keeps results, and takes those that it has.
    No engine is imported here: the scenarios of a seed and draft are made once and handed on as values.
    """
    for file in files:
        validate_names(file)
    batch = Batch(
        seeds=tuple(seeds),
        examples=examples,
        scenarios=((),) * len(seeds),
        tasks=(),
        device=device,
        parallel=parallel or _PARALLEL[device],
        deadline=deadline or _DEADLINE[device],
    )
    # Eager kernels do not run on a GPU.
    present = [file for file in files if file.patches != "eager" or device != "cuda"]
    groups: list[_Group] = []
    pieces: list[_Piece] = []
    is_whole, stale = True, dict[str, str]()
    with tempfile.TemporaryDirectory(prefix="draftproof-") as folder, ForkServer() as server:
        try:
            groups, stale = _groups(present, Path(folder), device, baseline, checkpoints)
            if groups and serve is None:
                server.start()
            lanes = _plan(groups, batch, pieces)
            _run(pieces, lanes, progress, keep(serve or server.run))
        except KeyboardInterrupt:
            is_whole = False
    done = _met(groups, pieces)
    ran = files if is_whole else _ran(files, groups, done)
    rows = tuple(_row(file, done, stale, len(seeds)) for file in ran)
    verdict = verdict_of(rows)
    report = FaultReport(
        verdict=verdict if is_whole or verdict is not Outcome.PASS else Outcome.INCONCLUSIVE,
        seeds=tuple(seeds),
        examples=examples,
        device=device,
        faults=rows,
        totals=totals(rows),
        versions=versions(),
    )
    if not is_whole:
        raise InterruptedRunError(report, len(files))
    return report


def _ran(files: Sequence[FaultFile], groups: Sequence[_Group], done: Mapping[str, Beside]) -> list[FaultFile]:
    """Return the faults that have all their results; without groups it is not known yet what there is to run."""
    missing = {task.id.removesuffix(WHOLE) for group in groups for task in group.tasks if task.id not in done}
    return [file for file in files if groups and file.fault.id not in missing]


def _row(file: FaultFile, done: dict[str, Beside], stale: dict[str, str], seeds: int) -> FaultResult:
    name = file.fault.id
    if name in done:
        return tried(file, done[name], done.get(name + WHOLE))
    if name in stale:
        return untried(file, FaultOutcome.STALE, stale[name], seeds)
    return untried(file, FaultOutcome.ABSENT, "it patches what does not run in this lane", seeds)


def noticed_in(
    file: FaultFile, result: FaultResult, report: FaultReport, checkpoints: Checkpoints | None
) -> Scenario | None:
    """Return the first scenario in which a fault was noticed; None if it was not, or met calls of kernels."""
    for seed, number in zip(report.seeds, result.examples_to_detect, strict=True):
        if number is not None and not _ops(file, report.device):
            return _met_by(file.fault, checkpoints).scenarios(seed, number)[-1]
    return None


class _Met(NamedTuple):
    """The draft of scenarios, and the checkpoints that they are of (None: probes)."""

    draft: DraftSet
    checkpoints: Checkpoints | None

    def scenarios(self, seed: int, count: int) -> tuple[Scenario, ...]:
        if self.checkpoints:
            return self.checkpoints.scenarios(self.draft, seed, count)
        return tuple(generate(seed, count, drafts_of(self.draft)))


def _met_by(fault: Fault, checkpoints: Checkpoints | None) -> _Met:
    return _Met(fault.draft, checkpoints or (tiny(fault.model, fault.draft) if fault.model else None))


_Lists = Mapping[tuple[_Met, int], tuple[Scenario, ...]]
"""By what makes them, and by seed."""


@dataclass(frozen=True)
class _Group:
    """Jobs that share a batch, clean twins last: one for each kernel, since these take long when interpreted.

    `met`: what scenarios they meet; None: they meet calls of kernels.
    """

    tasks: tuple[Task, ...]
    interpreted: bool
    met: _Met | None


@dataclass(frozen=True)
class _Piece:
    """A group on all seeds or one of them; `results`, by task, fill while it runs."""

    group: _Group
    batch: Batch
    results: dict[str, TaskResult] = field(default_factory=dict)


def _plan(groups: list[_Group], batch: Batch, pieces: list[_Piece]) -> int:
    """Add the pieces of all groups, and return how many run at a time: beside each other as `_shares` says."""
    parts = _by_seed(batch) if batch.device == "cpu" and batch.parallel > _LANE else [batch]
    lanes, shares = _shares([len(group.tasks) for group in groups for _ in parts], batch)
    of_each = ((group, part) for group in groups for part in parts)
    lists = _lists(groups, batch)
    for (group, part), share in zip(of_each, shares, strict=True):
        pieces.append(_Piece(group, msgspec.structs.replace(_batch(part, group, lists), parallel=share)))
    return lanes


def _lists(groups: list[_Group], batch: Batch) -> _Lists:
    """Make what scenarios groups meet, before there are threads: Hypothesis is not for several of them."""
    wanted = [(met, seed) for met in dict.fromkeys(group.met for group in groups) if met for seed in batch.seeds]
    processes = min(batch.parallel, os.cpu_count() or 1)
    made = SideBySide(lambda _number, one: one[0].scenarios(one[1], batch.examples), wanted, processes)
    return dict(zip(wanted, made, strict=True))


def _run(pieces: list[_Piece], lanes: int, progress: Progress, serve: Serve) -> None:
    """Fill the results of all pieces, `lanes` of them at a time; `progress` hears of a fault after its last seed."""
    left, counting = Counter(task.id for piece in pieces for task in piece.group.tasks), threading.Lock()

    def run(piece: _Piece) -> None:
        for result in serve(piece.batch):
            piece.results[result.id] = result
            with counting:
                left[result.id] -= 1
                if not left[result.id] and not result.id.endswith(WHOLE):
                    progress(result.id)

    pool = ThreadPoolExecutor(max_workers=lanes)
    try:
        deque(pool.map(run, pieces), maxlen=0)
    finally:
        # After an interrupt or an error threads wait for their server, which ends with the code that opened it.
        pool.shutdown(wait=False, cancel_futures=True)


def _met(groups: list[_Group], pieces: list[_Piece]) -> dict[str, Beside]:
    """Return the results that all pieces of a group have, beside those of their clean twins."""
    done = {}
    for group in groups:
        parts = [piece.results for piece in pieces if piece.group is group]
        names = [task.id for task in group.tasks if parts and all(task.id in part for part in parts)]
        whole = {name: joined([part[name] for part in parts]) for name in names}
        for task in group.tasks:
            twin = twin_id(task.ops)
            if task.id in whole:
                done[task.id] = Beside(whole[task.id], whole.get(twin, TaskResult(id=twin)))
    return done


def _by_seed(batch: Batch) -> list[Batch]:
    """Return a batch for each seed: its scenarios are solved one after another before anything runs."""
    return [msgspec.structs.replace(batch, seeds=(seed,), scenarios=((),)) for seed in batch.seeds]


def _shares(tasks: list[int], batch: Batch) -> tuple[int, list[int]]:
    """Return how many groups run at a time, and how many tasks of each.

    On a GPU, where each task mostly waits, and where there is a place for every group, all groups share the places.
    Else groups run side by side in lanes, so that few cores wait while a batch is solved, or for a clean twin; of few
    places a large group has all.
    """
    places, groups = batch.parallel, len(tasks)
    if batch.device == "cuda" or places >= groups:
        return max(1, groups), [max(1, round(places * count / sum(tasks))) for count in tasks]
    if places > _LANE:
        lanes = places // _LANE
        return lanes, [places // lanes] * groups
    return (1, [places] * groups) if max(tasks) > _FEW_TASKS else (places, [1] * groups)


def _batch(batch: Batch, group: _Group, made: _Lists) -> Batch:
    """Return the batch of a group: the scenarios that it meets, or none for one that meets kernels."""
    batch = msgspec.structs.replace(batch, tasks=group.tasks, interpreted=group.interpreted)
    if group.met is None:
        return batch
    lists = tuple(made[group.met, seed] for seed in batch.seeds)
    wanted = any(task.baseline for task in group.tasks)
    plain = tuple(unsteered(scenario) for of_seed in lists for scenario in of_seed) if wanted else ()
    return msgspec.structs.replace(batch, scenarios=lists, baseline=plain)


def _groups(
    files: Sequence[FaultFile], root: Path, device: str, baseline: bool, checkpoints: Checkpoints | None
) -> tuple[list[_Group], dict[str, str]]:
    """Group by what the tasks meet, and why the other faults are stale. Raises PatchError."""
    sources = read_sources()
    clean = write_copy(root / "clean", sources)
    tasks: dict[tuple[_Met | None, bool], list[Task]] = {}
    stale: dict[str, str] = {}
    for number, file in enumerate(files):
        fault = file.fault
        try:
            copy = write_fault(root / str(number), sources, file, clean)
        except StalePatchError as error:
            stale[fault.id] = str(error)
            continue
        ops = _ops(file, device)
        interpreted = file.patches == "triton" and device == "cpu"
        task = Task(
            id=fault.id,
            folder=copy.folder,
            hunks=copy.hunks,
            own=copy.own,
            expected=Expectation(contract=fault.contract, channel=fault.channel),
            ops=ops,
            baseline=baseline and not ops and device == "cpu",
        )
        met = _met_by(fault, checkpoints)
        tasks.setdefault((None if ops else met, interpreted), []).append(task)
        if ops and not interpreted:
            # Beside its contract, what whole scenarios make of a kernel: there anything that notices counts.
            whole = msgspec.structs.replace(
                task, id=fault.id + WHOLE, expected=Expectation(), ops=(), baseline=baseline
            )
            tasks.setdefault((met, False), []).append(whole)
    groups = []
    for (met_by, interpreted), of_kind in tasks.items():
        groups.append(_Group((*of_kind, *twins_of(of_kind, clean.folder)), interpreted, met_by))
    return groups, stale


def _ops(file: FaultFile, device: str) -> tuple[str, ...]:
    """Return the kernels that a fault is tried on; none: it meets whole scenarios.

    Under the interpreter only kernels run, since it is too slow for an engine.
    """
    if file.fault.contract.startswith(KERNEL_PREFIX):
        return (file.fault.contract.removeprefix(KERNEL_PREFIX),)
    if file.patches == "triton" and device == "cpu":
        return tuple(name.removeprefix(KERNEL_PREFIX) for name in KERNEL_CONTRACTS)
    return ()
