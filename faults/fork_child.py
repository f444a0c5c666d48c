"""What a forked child does: import a copy of the engine and run scenarios until its fault is noticed."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from types import ModuleType

from msgspec.structs import replace

import draftproof
from draftproof.faults.baseline import UsualRun, observe
from draftproof.faults.fork_server import Beat, Examples, Job, Rest, Say
from draftproof.faults.trial import FaultOutcome, SeedResult, kernel_trial, trial
from draftproof.harness.hunk_counters import HunkCounters
from draftproof.harness.lockstep import Solved
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.subject import Subject
from draftproof.properties.values.observed import LaunchRecord


def prepare() -> None:
    """Import what every child needs and no fault can touch."""
    for name in ("torch", "torch.overrides", "torch.utils._python_dispatch", "draftproof.properties.values.probe"):
        importlib.import_module(name)


def import_copy(folder: str) -> ModuleType:
    """The subject module of the engine in `folder`. Raises what importing it raises."""
    draftproof.__path__.insert(0, folder)
    module = importlib.import_module("draftproof.engine.subject")
    for name in ("draftproof.engine", "draftproof.kernels"):
        file = importlib.import_module(name).__file__
        if file is None or not Path(file).is_relative_to(folder):
            raise RuntimeError(f"{name} was imported from {file}, not from the copy in {folder}")
    return module


def work(rest: Rest, say: Say) -> None:
    """Run the rest of a job; `say` is told after every example, and at the end."""
    job = rest.job
    counters = HunkCounters(job.hunks)
    counters.install()
    done: list[SeedResult] = []
    try:
        subject: Subject = import_copy(job.folder).EngineSubject(device=rest.device)
    except Exception as error:
        detail = f"{type(error).__name__}: {error}, while the engine was imported"
        lost = tuple(_lost(seed, detail) for seed, _ in rest.seeds)
        say(Beat(done=lost, inert=counters.inert, usual=UsualRun(crash=detail) if job.usual else None, final=True))
        return
    for seed, examples in rest.seeds:
        done.append(_Seed(job, seed, rest.device, counters, tuple(done), say).run(subject, examples))
        if rest.device == "cuda" and done[-1].outcome is FaultOutcome.CRASHED:
            say(Beat(done=tuple(done), inert=counters.inert, again=True))
            return
    # Hunks count by what the steered scenarios ran.
    beat = Beat(done=tuple(done), inert=counters.inert)
    usual = observe(subject, rest.usual, lambda so_far: say(replace(beat, usual=so_far))) if job.usual else None
    say(replace(beat, usual=usual, final=True))


def _lost(seed: int, detail: str) -> SeedResult:
    return SeedResult(seed=seed, outcome=FaultOutcome.CRASHED, examples=1, seconds=0.0, detail=detail)


class _Seed:
    """One seed of a job, with a sign of life after each example."""

    def __init__(
        self, job: Job, seed: int, device: str, counters: HunkCounters, done: tuple[SeedResult, ...], say: Say
    ) -> None:
        self._job, self._seed, self._device = job, seed, device
        self._counters, self._done, self._say = counters, done, say
        self._examples, self._began = 0, time.perf_counter()

    def run(self, subject: Subject, examples: Examples) -> SeedResult:
        self._beat()
        aim = self._job.aim
        if self._job.ops:
            cases = [case for case in examples if isinstance(case, KernelCase)]
            return kernel_trial(self._seed, cases, aim, self._device, lambda: self._after(0))
        scenarios = [known for known in examples if isinstance(known, Solved)]
        return trial(subject, self._seed, scenarios, aim, lambda ran: self._after(replays(ran)))

    def _after(self, replays: int) -> None:
        self._examples += 1
        self._counters.ran(replays)
        self._beat()

    def _beat(self) -> None:
        seconds = time.perf_counter() - self._began
        self._say(Beat(done=self._done, inert=self._counters.inert, examples=self._examples, seconds=seconds))


def replays(ran: Evidence) -> int:
    """Launches of a run that were replays."""
    traces = [trace for trace in (ran.subject, ran.varied) if trace is not None]
    return sum(launch.replays > 0 for trace in traces for launch in trace.typed("graph.replay", LaunchRecord).values())
