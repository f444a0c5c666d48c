"""What a forked child does: import a copy of the engine and run scenarios until its fault is noticed."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import draftproof
from draftproof.fuzz.counters import HunkCounters
from draftproof.fuzz.lockstep import Solved
from draftproof.fuzz.trial import FaultOutcome, SeedResult, kernel_trial, trial
from draftproof.fuzz.zygote import Beat, Examples, Job, Say
from draftproof.properties.contracts.evidence import Evidence
from draftproof.properties.contracts.kernel import KernelCase
from draftproof.properties.subject import Subject


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


def work(job: Job, seeds: list[tuple[int, Examples]], device: str, say: Say) -> None:
    """Run a job; `say` is told after every example, and at the end."""
    counters = HunkCounters(job.hunks)
    counters.install()
    done: list[SeedResult] = []
    try:
        subject: Subject = import_copy(job.folder).EngineSubject(device=device)
    except Exception as error:
        detail = f"{type(error).__name__}: {error}, while the engine was imported"
        lost = [SeedResult(seed=seed, outcome=FaultOutcome.CRASHED, examples=1, detail=detail) for seed, _ in seeds]
        say(Beat(done=tuple(lost), inert=counters.inert, final=True))
        return
    for seed, examples in seeds:
        done.append(_Seed(job, seed, device, counters, tuple(done), say).run(subject, examples))
    say(Beat(done=tuple(done), inert=counters.inert, final=True))


class _Seed:
    """One seed of a job, with a sign of life after each example."""

    def __init__(
        self, job: Job, seed: int, device: str, counters: HunkCounters, done: tuple[SeedResult, ...], say: Say
    ) -> None:
        self._job, self._seed, self._device = job, seed, device
        self._counters, self._done, self._say = counters, done, say
        self._examples = 0

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
        self._say(Beat(done=self._done, inert=self._counters.inert, examples=self._examples))


def replays(ran: Evidence) -> int:
    """Launches of a run that were replays."""
    traces = [trace for trace in (ran.subject, ran.related) if trace is not None]
    values = [value for trace in traces for value in trace.channel("graph.replay").values()]
    return sum(isinstance(value, tuple) and len(value) == 6 and value[3] > 0 for value in values)
