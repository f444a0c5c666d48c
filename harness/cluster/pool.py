"""Errands to the workers of a cluster and answers back, in the place of a pool of processes on this machine.

What is out is kept here. If the process that speaks to the cluster ends, because its head is gone or with it, another
one is started that joins again, and gets all that is still out. An answer counts for an order that is out, and once.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Self, TypeVar

import msgspec

from draftproof.harness.cluster.address import ClusterError, not_joined
from draftproof.harness.cluster.bridge import BRIDGE_MODULE
from draftproof.harness.cluster.messages import (
    ClusterSpec,
    Device,
    Done,
    Errand,
    Failed,
    FromCluster,
    Joined,
    Leave,
    Lost,
)
from draftproof.harness.workers.pool import UNCALIBRATED, WorkerStartError
from draftproof.harness.workers.process import WorkerProcess, environments
from draftproof.harness.workers.start import Start, spawning
from draftproof.properties.lib.base import Value

AWAY_SECONDS = 600.0
"""How long a cluster that was joined may be away before the campaign ends."""
_JOIN_SECONDS, _AGAIN_SECONDS, _LEAVE_SECONDS = 120.0, 2.0, 10.0


Got = TypeVar("Got", bound=Value)


@dataclass(frozen=True)
class Job(Generic[Got]):
    """What workers of a cluster are: the MODULE:NAME of a NodeWorker, its device, what it is given, what it answers."""

    worker: str
    device: Device
    given: Value
    answer: type[Got]


class ClusterPool(Generic[Got]):
    """Workers for one job in the cluster at `address`, `count` of them (None: as many as it has room for).

    The log of what speaks to the cluster is in `folder`. Raises ClusterError on entry.
    """

    def __init__(
        self, address: str, job: Job[Got], count: int | None, folder: Path, *, start: Start | None = None
    ) -> None:
        given = msgspec.Raw(msgspec.json.encode(job.given))
        self._job = job
        self._spec = ClusterSpec(address=address, device=job.device, worker=job.worker, given=given, workers=count or 0)
        self._folder, self._start_method = folder, start or spawning(BRIDGE_MODULE)
        self._out: dict[int, Errand] = {}
        self._ticket, self._replaced, self._deadline = 0, 0, 0.0
        self._width, self._is_joined = 0, False
        self._gone, self._next_start = time.monotonic(), 0.0
        self._process: WorkerProcess | None = None
        self._told: list[str] = []
        self._tell: Callable[[str], None] = self._told.append

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._begin()
        try:
            self._join()
        except BaseException:
            self._end()
            raise
        return self

    def _join(self) -> None:
        end = time.monotonic() + _JOIN_SECONDS
        while not self._is_joined and time.monotonic() < end:
            self._listen(0.2, first=True)
        if not self._is_joined:
            raise self._error(f"it did not answer in {_JOIN_SECONDS:.0f} s")
        if not self._width:
            kind = "GPU with a free CPU" if self._spec.device == "cuda" else "CPU"
            raise self._error(f"it has no {kind}; a number of workers asks for these, and waits for nodes")

    def _error(self, why: str) -> ClusterError:
        return not_joined(self._spec.address, why)

    def tell(self, hear: Callable[[str], None]) -> None:
        """Call `hear` with every message about the cluster, from the beginning on."""
        self._tell = hear
        for what in self._told:
            hear(what)

    def __exit__(self, *_: object) -> None:
        if self._process and self._is_joined:
            self._process.send(Leave())
            end = time.monotonic() + _LEAVE_SECONDS
            while not self._process.ended and time.monotonic() < end:
                time.sleep(0.05)
        self._end()

    def put(self, work: Value, name: str) -> int:
        """Give an errand to the next free worker, and return its ticket; `name` is for people."""
        self._ticket += 1
        errand = Errand(ticket=self._ticket, name=name, work=msgspec.Raw(msgspec.json.encode(work)))
        self._out[self._ticket] = errand
        if self._process:
            self._process.send(errand)
        return self._ticket

    @property
    def free(self) -> int:
        """Workers without work."""
        return self._width - len(self._out)

    @property
    def width(self) -> int:
        """Workers that were asked for; those that have no room yet come later."""
        return self._width

    @property
    def replaced(self) -> int:
        """Workers that were lost."""
        return self._replaced

    @property
    def deadline(self) -> float:
        """Seconds that an order may take on the slowest node."""
        return self._deadline or UNCALIBRATED

    def poll(self, timeout: float) -> list[Got]:
        """Return what has finished since the last call; wait up to `timeout` seconds for the first.

        Raises WorkerStartError if workers cannot start, or the cluster is away for too long.
        """
        return [answer for _, answer in self.take(timeout)]

    def take(self, timeout: float) -> list[tuple[int, Got]]:
        """Return the same as `poll`, each with its ticket."""
        if self._process is None and time.monotonic() >= self._next_start:
            self._begin()
        return self._listen(timeout)

    def _begin(self) -> None:
        """Start the process that speaks to the cluster, and give it what is out."""
        environment = environments("cpu", 1)[0]
        self._process = WorkerProcess(self._spec, self._folder, 0, environment, self._start_method)
        for errand in self._out.values():
            self._process.send(errand)

    def _listen(self, timeout: float, *, first: bool = False) -> list[tuple[int, Got]]:
        if (process := self._process) is None:
            time.sleep(timeout)
            return []
        with selectors.DefaultSelector() as selector:
            selector.register(process.fileno(), selectors.EVENT_READ)
            selector.select(timeout)
        answers = self._taken(process, first=first)
        if process.ended:
            # What it still said counts.
            answers += self._taken(process, first=first)
            self._lost(process)
        return answers

    def _taken(self, process: WorkerProcess, *, first: bool) -> list[tuple[int, Got]]:
        answers = []
        for line in process.receive():
            message: FromCluster = msgspec.json.decode(line, type=FromCluster)
            if isinstance(message, Done) and message.ticket in self._out:
                del self._out[message.ticket]
                self._deadline = max(self._deadline, message.deadline)
                answers.append((message.ticket, msgspec.json.decode(message.answer, type=self._job.answer)))
            elif not isinstance(message, Done):
                self._hear(message, first=first)
        return answers

    def _hear(self, message: Joined | Lost | Failed, *, first: bool) -> None:
        if isinstance(message, Lost):
            self._replaced += 1
        elif isinstance(message, Joined):
            if not first:
                self._tell(f"the cluster is there again after {time.monotonic() - self._gone:.0f} s")
            self._is_joined, self._width = True, self._width or message.workers
            if message.room < message.workers:
                self._tell(
                    f"the cluster has room for {message.room} of {message.workers} workers; the others wait for nodes"
                )
        elif message.kind == "refused":
            raise WorkerStartError(message.reason)
        elif first:
            raise self._error(message.reason)

    def _lost(self, process: WorkerProcess) -> None:
        """Join again, a moment later: the workers of before are gone with the process that had asked for them."""
        process.kill()
        now = time.monotonic()
        if self._is_joined:
            self._gone, self._is_joined = now, False
            self._replaced += self._width
            self._tell(f"the cluster is away ({process.ended}); what it had in hand runs again once it is back")
        self._process, self._next_start = None, now + _AGAIN_SECONDS
        if now - self._gone > AWAY_SECONDS:
            raise WorkerStartError(f"{self._spec.address} is away for {AWAY_SECONDS:.0f} s:\n{process.log()}")

    def _end(self) -> None:
        if self._process:
            self._process.kill()
            self._process = None
