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
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from draftproof.fuzz.lockstep import Solved, solved
from draftproof.fuzz.trial import Aim, FaultOutcome, SeedResult
from draftproof.properties.values.base import Value
from draftproof.properties.values.scenario import Scenario

OURS = ("draftproof.engine", "draftproof.kernels")


class Job(Value):
    """One fault, or the clean twin: a copy of the sources, the names of its hunks, and who must notice."""

    id: str
    folder: str
    hunks: tuple[str, ...]
    aim: Aim


class Orders(Value):
    """What a zygote does: every job on the scenarios of every seed. `deadline`: seconds that one example may take."""

    seeds: tuple[int, ...]
    scenarios: tuple[tuple[Scenario, ...], ...]
    jobs: tuple[Job, ...]
    device: str
    parallel: int
    deadline: float


class JobResult(Value):
    """What became of a job: one result a seed, hunks that never had an effect, seconds it took, and our own errors."""

    id: str
    seeds: tuple[SeedResult, ...]
    inert: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str = ""


class Beat(Value):
    """A sign of life of a child: results so far, and hunks that never had an effect so far."""

    done: tuple[SeedResult, ...]
    inert: tuple[str, ...]
    final: bool = False
    error: str = ""


@dataclass
class _Child:
    job: Job
    pid: int
    pipe: int
    started: float
    heard: float
    buffer: bytes = b""
    beat: Beat | None = None
    hung: bool = False


Work = Callable[[Job, Orders, "list[tuple[Solved, ...]]", Callable[[Beat], None]], None]


def serve(orders: Orders, work: Work, report: Callable[[JobResult], None]) -> None:
    """Fork one child a job, `parallel` at a time."""
    known = [tuple(solved(scenario) for scenario in of_seed) for of_seed in orders.scenarios]
    loaded = [name for name in sys.modules if name.startswith(OURS)]
    if loaded:
        raise RuntimeError(f"the zygote has imported {loaded[0]}, so that no patch could take effect")
    gc.freeze()
    waiting, running = list(orders.jobs), {}
    with selectors.DefaultSelector() as selector:
        while waiting or running:
            while waiting and len(running) < orders.parallel:
                child = _fork(waiting.pop(0), orders, known, work)
                running[child.pipe] = child
                selector.register(child.pipe, selectors.EVENT_READ)
            for ready, _ in selector.select(timeout=0.5):
                if not _hear(running[ready.fd]):
                    selector.unregister(ready.fd)
                    report(_result(running.pop(ready.fd), orders))
            _kill_late(running.values(), orders.deadline)


def _fork(job: Job, orders: Orders, known: list[tuple[Solved, ...]], work: Work) -> _Child:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        now = time.monotonic()
        return _Child(job, pid, reading, now, now)
    os.close(reading)
    code = 0
    try:
        work(job, orders, known, lambda beat: _send(writing, beat))
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
    child.heard = time.monotonic()
    child.buffer += data
    *lines, child.buffer = child.buffer.split(b"\n")
    if lines:
        child.beat = msgspec.json.decode(lines[-1], type=Beat)
    return bool(data)


def _kill_late(children, deadline: float) -> None:  # type: ignore[no-untyped-def]
    for child in children:
        if time.monotonic() - child.heard > deadline and not child.hung:
            child.hung = True
            os.kill(child.pid, signal.SIGKILL)


def _result(child: _Child, orders: Orders) -> JobResult:
    os.close(child.pipe)
    _, status = os.waitpid(child.pid, 0)
    beat = child.beat or Beat(done=(), inert=child.job.hunks)
    done, error = beat.done, beat.error
    if not beat.final:
        # The seed under way is the one that killed it; how far it had come is not known, so the worst is said.
        number = len(orders.scenarios[len(done)])
        outcome = FaultOutcome.HUNG if child.hung else FaultOutcome.CRASHED
        detail = f"no sign of life for {orders.deadline:g} s" if child.hung else _death(status)
        lost = SeedResult(seed=orders.seeds[len(done)], outcome=outcome, examples=number, detail=detail)
        done = (*done, *(msgspec.structs.replace(lost, seed=seed) for seed in orders.seeds[len(done) :]))
    seconds = round(time.monotonic() - child.started, 3)
    return JobResult(id=child.job.id, seeds=done, inert=beat.inert, seconds=seconds, error=error)


def _death(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exited with {os.waitstatus_to_exitcode(status)}"


def main() -> None:
    """Run as `python -m draftproof.fuzz.zygote`."""
    from draftproof.fuzz.child import prepare, work

    orders = msgspec.json.decode(sys.stdin.buffer.read(), type=Orders)
    prepare()
    out = sys.stdout
    # What a child prints must not mix with the results.
    sys.stdout = sys.stderr
    serve(orders, work, lambda result: print(msgspec.json.encode(result).decode(), file=out, flush=True))


if __name__ == "__main__":
    main()
