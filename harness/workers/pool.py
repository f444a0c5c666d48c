"""Orders to workers and answers back: no order is lost, none is answered twice, whatever becomes of a worker.

A worker that dies, hangs or takes too much memory costs the order it had in hand, and is replaced. A pool belongs to
the thread that entered it: on Linux the workers die when that thread does.
"""

from __future__ import annotations

import itertools
import selectors
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from draftproof.harness.workers.ends import BY_PARENT, DEADLINE_PASSED, GARBLED, MEMORY, OUTSIDE, WorkerEnd
from draftproof.harness.workers.messages import Answer, AnyOrder, Order, Ready, SubjectSpec
from draftproof.harness.workers.process import WorkerProcess, environments
from draftproof.harness.workers.start import Start, spawn
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT

LEAST_DEADLINE = {"cpu": 10.0, "cuda": 60.0}
"""Seconds; on a GPU an order may have to compile a kernel first."""
SLOWER = 40
"""A calibrated deadline is this many times what the slowest of the scenarios took that were run for calibration."""
TWINS_SLOWER = 10
"""How many times longer an order with naive twins may take."""
UNCALIBRATED = 120.0
_START_SECONDS = 300.0
MOST_START_FAILURES, MOST_START_KILLS = 3, 20
"""In a row: of its own, and by signals from outside."""
_WARM, _COLD = 3, -1
_TICK, _MEMORY_TICK = 0.05, 0.25


class WorkerStartError(DraftproofError, RuntimeError):
    """Workers failed to start again and again; the message ends with what the last one said."""


@dataclass
class _Task:
    """An order with the number by which the pool knows it; `fresh`: only a worker without a past may have it."""

    ticket: int
    order: AnyOrder
    fresh: bool = False


@dataclass
class _Worker:
    """A process and what it has in hand since when. `warm`: calibrating orders that are still to be run."""

    process: WorkerProcess
    since: float
    ready: bool = False
    ran: int = 0
    task: _Task | None = None
    warm: deque[Order] = field(default_factory=deque)
    warming: Order | None = None
    garbled: bool = False

    @property
    def idle(self) -> bool:
        return self.ready and self.task is None and self.warming is None


class Pool:
    """`count` workers of one spec, with journals and logs in `folder`.

    `deadline`: seconds for one order; None: calibrated, that is the larger of LEAST_DEADLINE and SLOWER times what the
    slowest of a few fixed scenarios takes, which the first workers share at their first start (UNCALIBRATED until one
    of them ran, and for any subject but the built-in engine).
    `memory`: bytes that a worker may hold; None: any. Both are looked after in `poll` and `run`. `start`: `spawn`, or
    `fork(serve)` for workers that have everything loaded.
    """

    def __init__(
        self,
        spec: SubjectSpec,
        count: int,
        folder: Path,
        *,
        deadline: float | None = None,
        memory: int | None = None,
        start: Start = spawn,
    ) -> None:
        if count < 1:
            raise ValueError(f"invalid count {count}: expected at least 1 worker")
        self._spec, self._count, self._folder = spec, count, folder
        # It is not known which scenarios another project's subject can run: its deadline is never calibrated.
        foreign = UNCALIBRATED if spec.subject != BUILT_IN_SUBJECT else None
        self._wanted_deadline, self._memory, self._start_method = deadline or foreign, memory, start
        self._slowest = 0.0
        self._queue: deque[_Task] = deque()
        self._done: deque[tuple[int, Answer]] = deque()
        self._workers: list[_Worker] = []
        self._tickets = itertools.count()
        self._failures, self._replaced, self._weighed = 0, 0, 0.0
        self._selector: selectors.DefaultSelector

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._environments = environments(self._spec.device, self._count)
        self._selector = selectors.DefaultSelector()
        warm = self._calibrating() + [[]] * self._count
        try:
            for index in range(self._count):
                self._workers.append(self._start(index, warm[index]))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.process.kill()
        self._workers.clear()
        self._selector.close()

    def submit(self, order: AnyOrder) -> None:
        """Queue an order for the next free worker."""
        self._put(order)
        self._dispatch()

    @property
    def free(self) -> int:
        """Workers without work, less the queued orders."""
        return self._count - self.busy

    @property
    def width(self) -> int:
        """How many workers there are."""
        return self._count

    @property
    def busy(self) -> int:
        """Orders that are queued or running."""
        return len(self._queue) + sum(worker.task is not None for worker in self._workers)

    def poll(self, timeout: float) -> list[Answer]:
        """Return what has finished since the last call.

        Wait up to `timeout` seconds for the first, if there is anything to wait for.

        Raises WorkerStartError with the end of its log if workers fail to start again and again.
        """
        return [answer for _, answer in self._gather(timeout)]

    def run(self, orders: Sequence[AnyOrder]) -> list[Answer]:
        """Return the answers to all of them, in their order. Other orders' answers are kept for `poll`."""
        tickets = [self._put(order) for order in orders]
        answers: dict[int, Answer] = {}
        others: list[tuple[int, Answer]] = []
        while len(answers) < len(tickets):
            for ticket, answer in self._gather(1.0):
                if ticket in tickets:
                    answers[ticket] = answer
                else:
                    others.append((ticket, answer))
        self._done.extend(others)
        return [answers[ticket] for ticket in tickets]

    def fileno(self) -> int:
        """Return what is readable once there is something for `poll` to do."""
        return self._selector.fileno()

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(worker.process.pid for worker in self._workers)

    @property
    def replaced(self) -> int:
        """Workers that had to be replaced."""
        return self._replaced

    @property
    def deadline(self) -> float:
        """Seconds that an order may take."""
        if self._wanted_deadline is not None:
            return self._wanted_deadline
        least = LEAST_DEADLINE[self._spec.device]
        return max(least, SLOWER * self._slowest) if self._slowest else UNCALIBRATED

    def _calibrating(self) -> list[list[Order]]:
        """Return the calibrating orders of the first workers, each a share; its first is run twice: it is slow."""
        if self._wanted_deadline is not None:
            return []
        from draftproof.properties.strategies.scenarios import generate

        scenarios, workers = generate(0, _WARM, ALGORITHMS), min(_WARM, self._count)
        shares = [scenarios[index::workers] for index in range(workers)]
        return [
            [Order(number=_COLD, scenario=share[0]), *(Order(number=0, scenario=one) for one in share)]
            for share in shares
        ]

    def _start(self, index: int, warm: Iterable[Order] = ()) -> _Worker:
        process = WorkerProcess(self._spec, self._folder, index, self._environments[index], self._start_method)
        worker = _Worker(process, time.monotonic(), warm=deque(warm))
        self._selector.register(process.fileno(), selectors.EVENT_READ, worker)
        return worker

    def _put(self, order: AnyOrder) -> int:
        ticket = next(self._tickets)
        self._queue.append(_Task(ticket, order))
        return ticket

    def _gather(self, timeout: float) -> list[tuple[int, Answer]]:
        end = time.monotonic() + timeout
        while True:
            self._dispatch()
            waits = not self._done and self.busy
            for key, _ in self._selector.select(min(_TICK, max(0.0, end - time.monotonic())) if waits else 0):
                self._hear(key.data)
            self._look_after()
            if self._done or not self.busy or time.monotonic() >= end:
                self._dispatch()
                gathered = list(self._done)
                self._done.clear()
                return gathered

    def _dispatch(self) -> None:
        for worker in self._workers:
            if worker.idle and worker.warm:
                worker.warming = worker.warm.popleft()
                worker.since = time.monotonic()
                worker.process.send(worker.warming)
            elif worker.idle and (task := self._next(worker)):
                worker.task, worker.since = task, time.monotonic()
                worker.process.send(task.order)

    def _next(self, worker: _Worker) -> _Task | None:
        """Orders that are tried again stand first, and a worker without a past is there for each of them."""
        task = next((task for task in self._queue if not (task.fresh and worker.ran)), None)
        if task:
            self._queue.remove(task)
        return task

    def _hear(self, worker: _Worker) -> None:
        try:
            for line in worker.process.receive():
                self._take(worker, line)
        except msgspec.MsgspecError:
            worker.garbled = True

    def _take(self, worker: _Worker, line: bytes) -> None:
        if not worker.ready:
            msgspec.json.decode(line, type=Ready)
            worker.ready, self._failures = True, 0
            return
        answer = msgspec.json.decode(line, type=Answer)
        if worker.warming:
            self._slowest = max(self._slowest, answer.seconds if answer.number != _COLD else 0.0)
            worker.warming = None
        elif worker.task:
            self._done.append((worker.task.ticket, _with_kernels(worker, answer)))
            worker.task, worker.ran = None, worker.ran + 1

    def _look_after(self) -> None:
        """Replace workers that are gone, late, or too large."""
        now = time.monotonic()
        weigh = self._memory is not None and now - self._weighed >= _MEMORY_TICK
        self._weighed = now if weigh else self._weighed
        for index, worker in enumerate(self._workers):
            how = worker.process.ended or (GARBLED if worker.garbled else "")
            if not how and weigh and worker.process.rss > (self._memory or 0):
                how = MEMORY
            if how or self._late(worker, now):
                self._workers[index] = self._replace(index, worker, how or DEADLINE_PASSED)

    def _late(self, worker: _Worker, now: float) -> bool:
        if worker.idle or worker.process.answering:
            return False
        limit = self._limit(worker.task.order) if worker.task else UNCALIBRATED if worker.warming else _START_SECONDS
        return now - worker.since > limit

    def _limit(self, order: AnyOrder) -> float:
        return self.deadline * (TWINS_SLOWER if isinstance(order, Order) and order.twins else 1)

    def _replace(self, index: int, worker: _Worker, how: str) -> _Worker:
        """Return a worker in place of one that ends; what it still said counts."""
        if how in BY_PARENT:
            worker.process.dump()
        self._hear(worker)
        seconds = round(time.monotonic() - worker.since, 3)
        end = WorkerEnd(how, worker.process.entry, worker.process.log(), worker.ran, seconds)
        self._selector.unregister(worker.process.fileno())
        worker.process.kill()
        if worker.task:
            self._finish(index, worker.task, end)
        if not worker.ready:
            self._failed_start(end)
        self._replaced += 1
        return self._start(index, () if worker.ready else worker.warm)

    def _finish(self, index: int, task: _Task, end: WorkerEnd) -> None:
        """Try an order again, or say what became of it."""
        if not end.is_begun:
            self._queue.appendleft(task)
        elif end.is_doubtful(task.order) and not task.fresh:
            self._queue.appendleft(_Task(task.ticket, task.order, fresh=True))
        else:
            answer = msgspec.structs.replace(end.verdict(task.order, again=task.fresh), worker=index)
            self._done.append((task.ticket, _with_kernels(self._workers[index], answer)))

    def _failed_start(self, end: WorkerEnd) -> None:
        self._failures += 1
        if self._failures >= (MOST_START_KILLS if end.how in OUTSIDE else MOST_START_FAILURES):
            raise WorkerStartError(f"a worker could not start ({end.how}), {self._failures} times in a row:\n{end.log}")


def _with_kernels(worker: _Worker, answer: Answer) -> Answer:
    """Return the answer with the kernels that were called, if it was ordered so."""
    order = worker.task.order if worker.task else None
    if not isinstance(order, Order) or not order.kernels:
        return answer
    return msgspec.structs.replace(answer, kernels=worker.process.kernels())
