"""The process that faults are forked from: everything is imported and solved in it, except the engine and the kernels.

Run as `python -P -m draftproof.faults.fork_server`; standard input is a socket over which connections are sent. For
each it forks a process, which reads one Batch as a JSON line, and writes one TaskResult a line as they finish. Each
task has a forked worker of its own. It ends when standard input does, after what it forked.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import cast

import msgspec

from draftproof.faults.baseline import BaselineRun, add
from draftproof.faults.orders import WHOLE_LIST, Batch, Task, TaskResult, is_twin, most_met
from draftproof.faults.own_error import own_error
from draftproof.faults.trial import SeedResult, has_died, trial
from draftproof.harness.kernel_runs import cases
from draftproof.harness.workers.messages import Answer, AnyOrder, KernelOrder, Order, PlainOrder, SubjectSpec
from draftproof.harness.workers.pool import Pool, WorkerStartError
from draftproof.harness.workers.start import fork
from draftproof.harness.workers.worker import Preloaded
from draftproof.harness.workers.worker import main as serve_orders
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.solved import solved
from draftproof.subjects.process import die_with_parent

_OURS = ("draftproof.engine", "draftproof.kernels")
_IMPORTED = (
    "torch",
    "torch.overrides",
    "torch.utils._python_dispatch",
    "draftproof.harness.execute",
    "draftproof.properties.weights.probe",
)
_TICK = 0.05
Report = Callable[[TaskResult], None]


def preload(batch: Batch) -> Preloaded:
    """Solve all scenarios and generate all calls of kernels. Raises RuntimeError if an engine was imported."""
    wanted = batch.scenarios if any(not task.ops for task in batch.tasks) else ()
    scenarios = dict.fromkeys((*itertools.chain.from_iterable(wanted), *batch.baseline))
    ops = sorted({op for task in batch.tasks for op in task.ops})
    calls = {(op, seed): cases(op, seed, batch.examples) for op in ops for seed in batch.seeds}
    preloaded = Preloaded({scenario: solved(scenario) for scenario in scenarios}, calls)
    loaded = [name for name in sys.modules if name.startswith(_OURS)]
    if loaded:
        raise RuntimeError(f"the fork server has imported {loaded[0]}, so that no patch could take effect")
    return preloaded


def orders_of(task: Task, batch: Batch, place: int, preloaded: Preloaded) -> Iterator[AnyOrder]:
    """Yield the orders of a task for one seed; calls of several kernels in turn."""
    if not task.ops:
        for number, scenario in enumerate(batch.scenarios[place]):
            yield Order(number=number, scenario=scenario, measured=False)
        return
    seed = batch.seeds[place]
    longest = max(len(preloaded.cases[op, seed]) for op in task.ops)
    turns = ((op, number) for number in range(longest) for op in task.ops)
    for count, (op, number) in enumerate(turns):
        if number < len(preloaded.cases[op, seed]):
            yield KernelOrder(number=count, op=op, seed=seed, place=number)


class FaultsBeside:
    """What the faults of a batch met until they were noticed, which is all that a clean twin beside them has to run."""

    def __init__(self, batch: Batch) -> None:
        self._seeds, self._met = len(batch.seeds), batch.met
        self._left = Counter(task.ops for task in batch.tasks if not is_twin(task.id))
        self._done: dict[tuple[str, ...], list[TaskResult]] = {ops: [] for ops in self._left}

    def add(self, task: Task, result: TaskResult) -> None:
        """Note the end of a task."""
        if not is_twin(task.id):
            self._left[task.ops] -= 1
            self._done[task.ops].append(result)

    def needed(self, ops: tuple[str, ...], place: int) -> int:
        """Return how many examples of a seed a twin runs: all as long as a fault runs, and where there is none."""
        if self._left[ops] or ops not in self._done:
            return WHOLE_LIST
        return max(most_met(self._done[ops], self._seeds)[place], *self._met[place : place + 1], 0)

    def cut(self, task: Task, place: int, orders: Iterator[AnyOrder]) -> Iterator[AnyOrder]:
        """Yield the orders of a task for a seed, of a clean twin those that it needs to run."""
        return itertools.takewhile(
            lambda one: not is_twin(task.id) or one.number < self.needed(task.ops, place), orders
        )


def work(
    task: Task, batch: Batch, preloaded: Preloaded, beside: FaultsBeside
) -> Generator[AnyOrder, Answer, TaskResult]:
    """Yield the orders of a task one after another; return what their answers showed."""

    def stale(answer: Answer) -> str:
        return own_error(answer.detail, task.folder, task.own) if answer.outcome is Outcome.CRASH else ""

    effective: set[str] = set()
    seeds: list[SeedResult] = []
    for place, seed in enumerate(batch.seeds):
        orders = beside.cut(task, place, orders_of(task, batch, place, preloaded))
        running = trial(seed, orders, task.expected, stale)
        answer: Answer | None = None
        while True:
            try:
                order = running.send(answer) if answer else next(running)
            except StopIteration as end:
                seeds.append(end.value)
                break
            answer = yield order
            # A hunk that killed a worker had an effect, but the worker cannot say which hunk.
            effective |= set(task.hunks if has_died(answer) else answer.hunks)
    inert = tuple(name for name in task.hunks if name not in effective)
    result = TaskResult(id=task.id, seeds=tuple(seeds), inert=inert)
    if not task.baseline:
        return result
    run = BaselineRun()
    for number, scenario in enumerate(batch.baseline):
        run = add(run, (yield PlainOrder(number=number, scenario=scenario)))
        if run.crash:
            break
    return msgspec.structs.replace(result, baseline=run)


class _Running:
    """A task with its worker."""

    def __init__(self, task: Task, batch: Batch, preloaded: Preloaded, folder: Path, beside: FaultsBeside) -> None:
        self.task, self._began = task, time.monotonic()
        self._work = work(task, batch, preloaded, beside)
        self._order: AnyOrder | None = None
        self._failed: Answer | None = None
        spec = SubjectSpec(device=batch.device, folder=task.folder, hunks=task.hunks)  # type: ignore[arg-type]
        start = fork(partial(serve_orders, preloaded=preloaded))
        self.result: TaskResult | None = None
        self._stack = ExitStack()
        self.pool = self._stack.enter_context(Pool(spec, 1, folder, deadline=batch.deadline, start=start))
        self._advance(None)

    def step(self) -> None:
        """Take the answer that has come, if one has."""
        try:
            for answer in self.pool.poll(0.0):
                self._advance(answer)
        except WorkerStartError as error:
            # The engine's import ends the process; so it would for every order to come.
            last = str(error).splitlines()[0]
            while self.result is None:
                assert self._order is not None
                number = self._order.number
                self._advance(Answer(number=number, outcome=Outcome.CRASH, error="start", message=last, reason=last))

    def _advance(self, answer: Answer | None) -> None:
        try:
            self._order = self._work.send(answer) if answer else next(self._work)
        except StopIteration as end:
            self._end(cast(TaskResult, end.value))
        except Exception:
            self._end(TaskResult(id=self.task.id, error=traceback.format_exc()))
        else:
            self.pool.submit(self._order)

    def _end(self, result: TaskResult) -> None:
        self._stack.close()
        self.result = msgspec.structs.replace(result, seconds=round(time.monotonic() - self._began, 3))

    def close(self) -> None:
        self._stack.close()


def serve(batch: Batch, report: Report) -> None:
    """Run all tasks, `parallel` at a time."""
    preloaded, beside = preload(batch), FaultsBeside(batch)
    gc.freeze()
    waiting, running = deque(enumerate(batch.tasks)), list[_Running]()
    with tempfile.TemporaryDirectory(prefix="draftproof-fork-") as folder, ExitStack() as stack:
        while waiting or running:
            while waiting and len(running) < batch.parallel:
                number, task = waiting.popleft()
                running.append(_Running(task, batch, preloaded, Path(folder) / str(number), beside))
                stack.callback(running[-1].close)
            select.select([one.pool for one in running], [], [], _TICK)
            for one in running:
                one.step()
                if one.result is not None:
                    beside.add(one.task, one.result)
                    report(one.result)
            running = [one for one in running if one.result is None]


def _answer(connection: socket.socket) -> None:
    """Run the batch that comes over a connection."""
    with connection, connection.makefile("rwb", buffering=0) as stream:
        batch = msgspec.json.decode(stream.readline(), type=Batch)
        if batch.interpreted:
            if "triton" in sys.modules:
                raise RuntimeError("the fork server has imported triton, so that it could not be interpreted")
            os.environ["TRITON_INTERPRET"] = "1"

        def report(result: TaskResult) -> None:
            stream.write(msgspec.json.encode(result) + b"\n")

        serve(batch, report)


def _forked(control: socket.socket, connection: socket.socket) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        control.close()
        _answer(connection)
        code = 0
    except SystemExit:
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> None:
    """Serve until standard input ends."""
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    control, running = socket.socket(fileno=0), set[int]()
    while True:
        message, files, *_ = socket.recv_fds(control, 1, 1)
        if not message:
            break
        with socket.socket(fileno=files[0]) as connection:
            running.add(_forked(control, connection))
        running = {pid for pid in running if os.waitpid(pid, os.WNOHANG)[0] == 0}
    for pid in running:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
