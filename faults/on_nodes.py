"""Batches of faults and mutants on a cluster: chunks of their tasks go to the nodes, each to a fork server there.

Nodes have the sources of this machine, which the cluster's pool looks after. So of a patched copy only the files that
are changed go with a task.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple, Self

import msgspec

from draftproof.faults.catalogue import read_sources
from draftproof.faults.checkpoints import is_tiny, tiny_folder
from draftproof.faults.orders import Batch, Task, TaskResult
from draftproof.faults.patched_sources import write_copy
from draftproof.faults.served import ForkServer
from draftproof.harness.cluster.messages import Device, Ran
from draftproof.harness.cluster.pool import ClusterPool, Job
from draftproof.harness.workers.start import Start
from draftproof.properties.lib.base import Value
from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import Checkpoint, Scenario

_PARALLEL = {"cpu": 1, "cuda": 3}
"""Tasks of one worker at a time, by device: a quarter of a GPU mostly waits."""
ALL_AT_ONCE = 1 << 20
"""As `parallel` of a run: all of its batches are given out at once, and wait in the cluster's queue."""
_LEAST, _MOST, _TURNS = 4, 32, 4
_TICK = 0.1


class GivenBatches(Value, frozen=True, kw_only=True):
    """What workers for batches are given: nothing."""


class Chunk(Value, frozen=True, kw_only=True):
    """A batch with some of its tasks, and for each the files of its copy that are not as on every node."""

    batch: Batch
    changed: tuple[dict[str, str], ...]


class ChunkResults(Value, frozen=True, kw_only=True):
    """The result of every task of a chunk; `error`: an error of our own."""

    results: tuple[TaskResult, ...] = ()
    error: str = ""


class BatchWorker:
    """A worker on a node that runs chunks, with a fork server of its own."""

    def __init__(self, given: bytes, node: str, folder: Path) -> None:
        msgspec.json.decode(given, type=GivenBatches)
        self._node, self._folder, self._server = node, folder, ForkServer()

    def start(self, deadline: float) -> None:
        """Start the fork server."""
        self._server.start()

    def run(self, work: bytes) -> Ran:
        """Return the results of a chunk."""
        chunk = msgspec.json.decode(work, type=Chunk)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            tasks = tuple(
                msgspec.structs.replace(task, folder=_copy(Path(folder) / str(number), changed))
                for number, (task, changed) in enumerate(zip(chunk.batch.tasks, chunk.changed, strict=True))
            )
            try:
                done = list(self._server.run(msgspec.structs.replace(_here(chunk.batch), tasks=tasks)))
            except (RuntimeError, CheckpointError) as error:
                said = ChunkResults(error=f"on {self._node}: {error}")
            else:
                said = ChunkResults(results=tuple(msgspec.structs.replace(one, nodes=(self._node,)) for one in done))
        return Ran(answer=msgspec.Raw(msgspec.json.encode(said)))


def _here(batch: Batch) -> Batch:
    """Return the batch with the tiny checkpoints of this node, which are the same on every node."""
    lists = tuple(tuple(_moved(one) for one in scenarios) for scenarios in batch.scenarios)
    return msgspec.structs.replace(batch, scenarios=lists, baseline=tuple(_moved(one) for one in batch.baseline))


def _moved(scenario: Scenario) -> Scenario:
    model, draft = scenario.model, scenario.draft
    if isinstance(model, Checkpoint):
        model = msgspec.structs.replace(model, path=_path(model.path))
    if isinstance(draft, CheckpointDraft) and draft.path:
        draft = msgspec.structs.replace(draft, path=_path(draft.path))
    return msgspec.structs.replace(scenario, model=model, draft=draft)


def _path(path: str) -> str:
    """Return where a checkpoint is on this node: only the tiny ones may lie elsewhere."""
    given = Path(path)
    if not is_tiny(given.parent):
        return path
    return str(tiny_folder(Path(tempfile.gettempdir()) / "draftproof-nodes") / given.name)


def _copy(folder: Path, changed: Mapping[str, str]) -> str:
    return write_copy(folder, {**read_sources(), **changed}).folder


class _Asked(NamedTuple):
    """A chunk to be given out, and the caller that waits for its results."""

    chunk: Chunk
    name: str
    reply: SimpleQueue[ChunkResults | BaseException]


class ClusterServer:
    """Batches on the cluster at `address`, in `workers` workers (None: as many as it has room for).

    Runs batches of several threads at a time, as a ForkServer does. `tell` hears what becomes of the cluster. Raises
    ClusterError on entry.
    """

    def __init__(
        self,
        address: str,
        device: Device,
        workers: int | None,
        *,
        tell: Callable[[str], None] = lambda _text: None,
        start: Start | None = None,
    ) -> None:
        self._tell, self._sources = tell, read_sources()
        self._asked: SimpleQueue[_Asked] = SimpleQueue()
        self._folder = tempfile.TemporaryDirectory(prefix="draftproof-cluster-")
        job = Job(f"{__name__}:{BatchWorker.__name__}", device, GivenBatches(), ChunkResults)
        self._parallel = _PARALLEL[device]
        self._pool = ClusterPool(address, job, workers, Path(self._folder.name), start=start)
        self._leaving, self._joined = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        # What a pool starts ends with the thread that started it, so that one thread has all of it.
        self._thread = threading.Thread(target=self._drive, name="cluster", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._joined.wait()
        if self._error is not None:
            self.__exit__()
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        self._thread.join()
        self._folder.cleanup()

    def run(self, batch: Batch) -> Iterator[TaskResult]:
        """Yield results as chunks end. Raises RuntimeError for errors of our own, and what ends the cluster's pool."""
        reply: SimpleQueue[ChunkResults | BaseException] = SimpleQueue()
        chunks = list(self._chunks(batch))
        for chunk in chunks:
            names = ", ".join(task.id or "unmutated code" for task in chunk.batch.tasks[:3])
            self._asked.put(_Asked(chunk, f"the chunk that begins with {names}", reply))
        for _ in chunks:
            got = self._answer(reply)
            if got.error:
                raise RuntimeError(got.error)
            yield from got.results

    def _answer(self, reply: SimpleQueue[ChunkResults | BaseException]) -> ChunkResults:
        while True:
            try:
                got = reply.get(timeout=1.0)
            except Empty:
                if self._error is None and not self._leaving.is_set():
                    continue
                got = self._error or RuntimeError("the cluster was left before this batch had its end")
            if isinstance(got, BaseException):
                raise got
            return got

    def _chunks(self, batch: Batch) -> Iterator[Chunk]:
        """Yield a batch in parts, with each clean twin by itself: it runs everything."""
        twins = [task for task in batch.tasks if not task.hunks]
        others = [task for task in batch.tasks if task.hunks]
        size = min(_MOST, max(_LEAST, len(others) // (_TURNS * max(1, self._pool.width))))
        parts = [[twin] for twin in twins] + [others[at : at + size] for at in range(0, len(others), size)]
        for tasks in parts:
            part = msgspec.structs.replace(batch, tasks=tuple(tasks), parallel=self._parallel)
            # A chunk without a folder of this machine can run anywhere.
            bare = tuple(msgspec.structs.replace(task, folder="") for task in tasks)
            yield Chunk(
                batch=msgspec.structs.replace(part, tasks=bare), changed=tuple(self._changed(task) for task in tasks)
            )

    def _changed(self, task: Task) -> dict[str, str]:
        """Return the files of a copy that are not as here."""
        texts = ((path, (Path(task.folder) / path).read_text(encoding="utf-8")) for path in _files(task.folder))
        return {path: text for path, text in texts if text != self._sources.get(path)}

    def _drive(self) -> None:
        try:
            with ExitStack() as stack:
                stack.enter_context(self._pool)
                self._pool.tell(self._tell)
                self._joined.set()
                out: dict[int, SimpleQueue[ChunkResults | BaseException]] = {}
                while not self._leaving.is_set():
                    while not self._asked.empty():
                        asked = self._asked.get()
                        out[self._pool.put(asked.chunk, asked.name)] = asked.reply
                    for ticket, results in self._pool.take(_TICK):
                        out.pop(ticket).put(results)
        except BaseException as error:
            self._error = error
            self._joined.set()


def _files(folder: str) -> list[str]:
    root = Path(folder)
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))
