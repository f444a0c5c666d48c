"""Scenarios on a cluster: orders of a campaign go out and answers come back, as with a pool on this machine."""

from __future__ import annotations

from pathlib import Path

import msgspec

from draftproof.harness.cluster.messages import Ran
from draftproof.harness.cluster.pool import ClusterPool, Job
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.harness.workers.start import Start
from draftproof.properties.lib.base import Value


class GivenSubject(Value, frozen=True, kw_only=True):
    """The subject of workers on nodes; `memory`: most bytes of one (0: any).

    `files` are the files of the subject's folder, by their paths in it, because nodes share no disk.
    """

    subject: SubjectSpec
    memory: int = 0
    files: dict[str, str] = msgspec.field(default_factory=dict)


class ScenarioWorker:
    """A worker on a node that runs scenarios, in a process with a journal, a deadline and a limit of memory."""

    def __init__(self, given: bytes, node: str, folder: Path) -> None:
        self._given, self._node, self._folder = msgspec.json.decode(given, type=GivenSubject), node, folder

    def start(self, deadline: float) -> None:
        """Write the subject's files, and start the process."""
        subject, copy = self._given.subject, self._folder / "subject"
        for name, text in self._given.files.items():
            path = copy / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if self._given.files:
            subject = msgspec.structs.replace(subject, folder=str(copy))
        pool = Pool(subject, 1, self._folder / "worker", deadline=deadline or None, memory=self._given.memory or None)
        self._pool = pool.__enter__()

    def run(self, work: bytes) -> Ran:
        """Return the answer to an order. Raises WorkerStartError."""
        (answer,) = self._pool.run([msgspec.json.decode(work, type=Order)])
        named = msgspec.structs.replace(answer, node=self._node)
        return Ran(answer=msgspec.Raw(msgspec.json.encode(named)), deadline=self._pool.deadline)


class OrderPool(ClusterPool[Answer]):
    """Workers of one spec in the cluster at `address`, `count` of them (None: as many as it has room for).

    `memory`: bytes that a worker may hold. Raises ClusterError on entry.
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
        given = GivenSubject(subject=spec, memory=memory or 0, files=files)
        job = Job(f"{__name__}:{ScenarioWorker.__name__}", spec.device, given, Answer)
        super().__init__(address, job, count, folder, start=start)

    def submit(self, order: Order) -> None:
        """Give an order to the next free worker."""
        self.put(order, f"scenario {order.number}")


def _files(folder: Path) -> dict[str, str]:
    """Return the files of a copy of sources, by their paths in it."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in found}
