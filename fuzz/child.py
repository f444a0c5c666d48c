"""What a forked child does: import a copy of the engine and run scenarios until its fault is noticed."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import draftproof
from draftproof.fuzz.counters import HunkCounters
from draftproof.fuzz.lockstep import Solved
from draftproof.fuzz.trial import FaultOutcome, SeedResult, trial
from draftproof.fuzz.zygote import Beat, Job, Say
from draftproof.properties.contracts.evidence import Evidence
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


def work(job: Job, seeds: list[tuple[int, tuple[Solved, ...]]], device: str, say: Say) -> None:
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
    for seed, scenarios in seeds:
        done.append(_seed(subject, job, seed, scenarios, counters, tuple(done), say))
    say(Beat(done=tuple(done), inert=counters.inert, final=True))


def _seed(
    subject: Subject,
    job: Job,
    seed: int,
    scenarios: tuple[Solved, ...],
    counters: HunkCounters,
    done: tuple[SeedResult, ...],
    say: Say,
) -> SeedResult:
    examples = 0

    def after(ran: Evidence) -> None:
        nonlocal examples
        examples += 1
        counters.ran(replays(ran))
        say(Beat(done=done, inert=counters.inert, examples=examples))

    say(Beat(done=done, inert=counters.inert))
    return trial(subject, seed, scenarios, job.aim, after)


def replays(ran: Evidence) -> int:
    """Launches of a run that were replays."""
    traces = [trace for trace in (ran.subject, ran.related) if trace is not None]
    values = [value for trace in traces for value in trace.channel("graph.replay").values()]
    return sum(isinstance(value, tuple) and len(value) == 4 and value[3] > 0 for value in values)
