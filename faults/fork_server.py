"""The process that faults are forked from: everything is imported and solved in it, except the engine and the kernels.

Reads one Orders as JSON from standard input, writes one JobResult a line to standard output as they finish.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest

import msgspec

from draftproof.faults.baseline import UsualRun
from draftproof.faults.trial import Aim, FaultOutcome, SeedResult
from draftproof.harness.kernel_runs import cases
from draftproof.harness.lockstep import Solved, solved
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.values.base import Value
from draftproof.properties.values.scenario import Scenario

OURS = ("draftproof.engine", "draftproof.kernels")


class Job(Value, frozen=True, kw_only=True):
    """One fault, or a clean twin: a copy of the sources, the names of its hunks, and who must notice.

    With `ops` it meets calls of these kernels, instead of scenarios; with `usual` unsteered scenarios, after its seeds.
    """

    id: str
    folder: str
    hunks: tuple[str, ...]
    aim: Aim
    ops: tuple[str, ...] = ()
    usual: bool = False


class Orders(Value, frozen=True, kw_only=True):
    """What a zygote does: every job on the scenarios of every seed. `deadline`: seconds that one example may take.

    `examples`: how many kernel calls each op gets a seed. `usual`: the unsteered scenarios.
    """

    seeds: tuple[int, ...]
    examples: int
    scenarios: tuple[tuple[Scenario, ...], ...]
    jobs: tuple[Job, ...]
    device: str
    parallel: int
    deadline: float
    usual: tuple[Scenario, ...] = ()


class JobResult(Value, frozen=True, kw_only=True):
    """What became of a job: one result a seed, hunks that never had an effect, seconds it took, and our own errors.

    `usual`: what it did on the unsteered scenarios, if there were any.
    """

    id: str
    seeds: tuple[SeedResult, ...]
    inert: tuple[str, ...] = ()
    usual: UsualRun | None = None
    seconds: float = 0.0
    error: str = ""


class Beat(Value, frozen=True, kw_only=True):
    """A sign of life of a child: results so far, and hunks that never had an effect so far.

    `examples` of the seed under way have run in `seconds`; `usual`: what unsteered scenarios have shown so far. With
    `again` the child ends itself and another is to do the rest: a GPU's context does not outlive a crash.
    """

    done: tuple[SeedResult, ...]
    inert: tuple[str, ...]
    examples: int = 0
    seconds: float = 0.0
    usual: UsualRun | None = None
    again: bool = False
    final: bool = False
    error: str = ""


@dataclass(frozen=True)
class _Task:
    """A job, and what is known of it already: a child that dies costs the seed under way, not those after it."""

    job: Job
    started: float
    done: tuple[SeedResult, ...] = ()
    inert: frozenset[str] | None = None
    usual: UsualRun | None = None


@dataclass
class _Child:
    task: _Task
    pid: int
    pipe: int
    heard: float
    beat: Beat
    buffer: bytes = b""
    hung: bool = False


Say = Callable[[Beat], None]
Examples = tuple[Solved, ...] | tuple[KernelCase, ...]


@dataclass(frozen=True)
class Rest:
    """What is left of a job: scenarios or calls of kernels by seed, then unsteered scenarios."""

    job: Job
    seeds: list[tuple[int, Examples]]
    usual: tuple[Solved, ...]
    device: str


Work = Callable[[Rest, Say], None]


class _Prepared:
    """What children meet, made before any of them is forked: solved scenarios, and calls of kernels."""

    def __init__(self, orders: Orders) -> None:
        self._seeds = orders.seeds
        wanted = orders.scenarios if any(not job.ops for job in orders.jobs) else ((),) * len(orders.seeds)
        self._solved = [tuple(solved(scenario) for scenario in of_seed) for of_seed in wanted]
        ops = sorted({op for job in orders.jobs for op in job.ops})
        self._cases = {(op, seed): cases(op, seed, orders.examples) for op in ops for seed in orders.seeds}
        self._usual = tuple(solved(scenario) for scenario in orders.usual)
        self._device = orders.device

    def rest(self, task: _Task) -> Rest:
        """What a task has still to meet."""
        usual = self._usual if task.job.usual and task.usual is None else ()
        return Rest(task.job, self._of(task.job)[len(task.done) :], usual, self._device)

    def _of(self, job: Job) -> list[tuple[int, Examples]]:
        """The examples of a job by seed; of several kernels in turn."""
        if not job.ops:
            return list(zip(self._seeds, self._solved, strict=True))
        turns = [zip_longest(*(self._cases[op, seed] for op in job.ops)) for seed in self._seeds]
        mixed = [tuple(case for turn in turns_of for case in turn if case is not None) for turns_of in turns]
        return list(zip(self._seeds, mixed, strict=True))


def serve(orders: Orders, work: Work, report: Callable[[JobResult], None]) -> None:
    """Fork one child a job, `parallel` at a time."""
    prepared = _Prepared(orders)
    loaded = [name for name in sys.modules if name.startswith(OURS)]
    if loaded:
        raise RuntimeError(f"the zygote has imported {loaded[0]}, so that no patch could take effect")
    gc.freeze()
    waiting = [_Task(job, 0.0) for job in orders.jobs]
    running: dict[int, _Child] = {}
    with selectors.DefaultSelector() as selector:
        while waiting or running:
            while waiting and len(running) < orders.parallel:
                child = _fork(waiting.pop(0), prepared, work)
                running[child.pipe] = child
                selector.register(child.pipe, selectors.EVENT_READ)
            for ready, _ in selector.select(timeout=0.5):
                if not _hear(running[ready.fd]):
                    selector.unregister(ready.fd)
                    task = _over(running.pop(ready.fd), orders)
                    if isinstance(task, JobResult):
                        report(task)
                    else:
                        waiting.insert(0, task)
            _kill_late(running.values(), orders.deadline)


def _fork(task: _Task, prepared: _Prepared, work: Work) -> _Child:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        now = time.monotonic()
        task = task if task.started else replace(task, started=now)
        return _Child(task, pid, reading, now, Beat(done=(), inert=task.job.hunks))
    os.close(reading)
    code = 0
    try:
        work(prepared.rest(task), lambda beat: _send(writing, beat))
    except BaseException:
        _send(writing, Beat(done=(), inert=(), final=True, error=traceback.format_exc()))
        code = 2
    finally:
        os._exit(code)


def _send(pipe: int, beat: Beat) -> None:
    data = msgspec.json.encode(beat) + b"\n"
    while data:
        data = data[os.write(pipe, data) :]


def _hear(child: _Child) -> bool:
    """Read what a child says; False once it is gone."""
    data = os.read(child.pipe, 1 << 16)
    if data:
        child.heard = time.monotonic()
    child.buffer += data
    *lines, child.buffer = child.buffer.split(b"\n")
    if lines:
        child.beat = msgspec.json.decode(lines[-1], type=Beat)
    return bool(data)


def _kill_late(children: Iterable[_Child], deadline: float) -> None:
    for child in children:
        if time.monotonic() - child.heard > deadline and not child.hung:
            child.hung = True
            os.kill(child.pid, signal.SIGKILL)


def _over(child: _Child, orders: Orders) -> JobResult | _Task:
    """The result of a finished job, or the rest of one whose child died."""
    os.close(child.pipe)
    _, status = os.waitpid(child.pid, 0)
    task, beat = child.task, child.beat
    # What killed a child had an effect, and it cannot say of which hunk.
    told = frozenset(beat.inert) if beat.final or beat.again else frozenset()
    inert = told if task.inert is None else task.inert & told
    done, usual = (*task.done, *beat.done), beat.usual if beat.final else task.usual
    if not (beat.final or beat.again):
        outcome = FaultOutcome.HUNG if child.hung else FaultOutcome.CRASHED
        detail = f"no sign of life for {orders.deadline:g} s" if child.hung else _death(status)
        if len(done) < len(orders.seeds):
            done = (*done, _lost(child, orders.seeds[len(done)], outcome, detail))
        else:
            usual = msgspec.structs.replace(beat.usual or UsualRun(), crash=detail)
    if not beat.error and (len(done) < len(orders.seeds) or (task.job.usual and usual is None)):
        return replace(task, done=done, inert=inert, usual=usual)
    hunks = tuple(name for name in task.job.hunks if name in inert)
    seconds = round(time.monotonic() - task.started, 3)
    return JobResult(id=task.job.id, seeds=done, inert=hunks, usual=usual, seconds=seconds, error=beat.error)


def _lost(child: _Child, seed: int, outcome: FaultOutcome, detail: str) -> SeedResult:
    """The seed in which a child died."""
    seconds = round(child.beat.seconds + time.monotonic() - child.heard, 4)
    number = child.beat.examples + 1
    return SeedResult(seed=seed, outcome=outcome, examples=number, seconds=seconds, detail=detail)


def _death(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exited with {os.waitstatus_to_exitcode(status)}"


def main() -> None:
    """Run as `python -m draftproof.faults.fork_server`."""
    from draftproof.faults.fork_child import prepare, work

    orders = msgspec.json.decode(sys.stdin.buffer.read(), type=Orders)
    prepare()
    out = sys.stdout
    # What a child prints must not mix with the results.
    sys.stdout = sys.stderr
    serve(orders, work, lambda result: print(msgspec.json.encode(result).decode(), file=out, flush=True))


if __name__ == "__main__":
    main()
