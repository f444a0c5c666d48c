"""Orders to the workers of a cluster and answers back, in the place of a pool of processes on this machine.

What is out is kept here. If the process that speaks to the cluster ends, because its head is gone or with it, another
one is started that joins again, and gets all that is still out. An answer counts for an order that is out, and once.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from draftproof.errors import DraftproofError
from draftproof.harness.cluster.bridge import MODULE
from draftproof.harness.cluster.messages import ClusterSpec, Done, Errand, Failed, FromCluster, Joined, Leave, Lost
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.harness.workers.pool import UNCALIBRATED, WorkerStartError
from draftproof.harness.workers.process import WorkerProcess, environments
from draftproof.harness.workers.start import Start, spawning

AWAY_SECONDS = 600.0
"""How long a cluster that was joined may be away before the campaign ends."""
_JOIN_SECONDS, _AGAIN_SECONDS, _LEAVE_SECONDS = 120.0, 2.0, 10.0


class ClusterError(DraftproofError, ValueError):
    """A cluster cannot be joined; the message names its address and says why."""


class ClusterPool:
    """Workers of one spec in the cluster at `address`, `count` of them (None: as many as it has room for).

    The log of what speaks to the cluster is in `folder`. `memory`: bytes that a worker may hold. `note` is told what
    becomes of the cluster. Raises ClusterError on entry.
    """

    def __init__(
        self,
        address: str,
        spec: SubjectSpec,
        count: int | None,
        folder: Path,
        *,
        memory: int | None = None,
        start: Start | None = None,
    ) -> None:
        files = _files(Path(spec.folder)) if spec.folder else {}
        self._spec = ClusterSpec(address=address, subject=spec, workers=count or 0, memory=memory or 0, files=files)
        self._folder, self._start_method = folder, start or spawning(MODULE)
        self._out: dict[int, Order] = {}
        self._ticket, self._replaced, self._deadline = 0, 0, 0.0
        self._width, self._is_joined = 0, False
        self._gone, self._next_start = time.monotonic(), 0.0
        self._process: WorkerProcess | None = None
        self.note: Callable[[str], None] = lambda _text: None

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
            kind = "GPU" if self._spec.subject.device == "cuda" else "CPU"
            raise self._error(f"it has no {kind}; --workers N asks for N workers, and waits for them")

    def _error(self, why: str) -> ClusterError:
        return ClusterError(f"invalid --cluster {self._spec.address!r}: expected a Ray cluster that runs, but {why}")

    def __exit__(self, *_: object) -> None:
        if self._process and self._is_joined:
            self._process.send(Leave())
            end = time.monotonic() + _LEAVE_SECONDS
            while not self._process.ended and time.monotonic() < end:
                time.sleep(0.05)
        self._end()

    def submit(self, order: Order) -> None:
        """Give an order to the next free worker."""
        self._ticket += 1
        self._out[self._ticket] = order
        if self._process:
            self._process.send(Errand(ticket=self._ticket, order=order))

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

    def poll(self, timeout: float) -> list[Answer]:
        """Return what has finished since the last call; waits so many seconds for the first.

        Raises WorkerStartError if workers cannot start, or the cluster is away for too long.
        """
        if self._process is None and time.monotonic() >= self._next_start:
            self._begin()
        return self._listen(timeout)

    def _begin(self) -> None:
        """Start the process that speaks to the cluster, and give it what is out."""
        environment = environments("cpu", 1)[0]
        self._process = WorkerProcess(self._spec, self._folder, 0, environment, self._start_method)
        for ticket, order in self._out.items():
            self._process.send(Errand(ticket=ticket, order=order))

    def _listen(self, timeout: float, *, first: bool = False) -> list[Answer]:
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

    def _taken(self, process: WorkerProcess, *, first: bool) -> list[Answer]:
        answers = []
        for line in process.receive():
            message: FromCluster = msgspec.json.decode(line, type=FromCluster)
            if isinstance(message, Done) and self._out.pop(message.ticket, None):
                self._deadline = max(self._deadline, message.deadline)
                answers.append(message.answer)
            elif not isinstance(message, Done):
                self._hear(message, first=first)
        return answers

    def _hear(self, message: Joined | Lost | Failed, *, first: bool) -> None:
        if isinstance(message, Lost):
            self._replaced += 1
        elif isinstance(message, Joined):
            if not first:
                self.note(f"the cluster is there again after {time.monotonic() - self._gone:.0f} s")
            self._is_joined, self._width = True, self._width or message.workers
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
            self.note(f"the cluster is away ({process.ended}); what it had in hand runs again once it is back")
        self._process, self._next_start = None, now + _AGAIN_SECONDS
        if now - self._gone > AWAY_SECONDS:
            raise WorkerStartError(f"{self._spec.address} is away for {AWAY_SECONDS:.0f} s:\n{process.log()}")

    def _end(self) -> None:
        if self._process:
            self._process.kill()
            self._process = None


def _files(folder: Path) -> dict[str, str]:
    """Return the files of a copy of sources, by their paths in it."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in found}
