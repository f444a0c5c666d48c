"""A worker on a node: an actor that has a worker process of its own, with its journal, deadline and limit of memory.

So a crash, a hang or too much memory of the subject is told there as on a machine of one's own, and what ends this
actor comes from outside. What it is given and what it returns is JSON.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from draftproof.harness.cluster.messages import ClusterSpec, Ran
from draftproof.harness.cluster.node import this_node
from draftproof.harness.workers.messages import Order
from draftproof.harness.workers.pool import Pool


class Supervisor:
    """One worker; its calls come one after the other, in the thread that it was made in."""

    def __init__(self, spec: bytes) -> None:
        self._spec = msgspec.json.decode(spec, type=ClusterSpec)
        self._folder = tempfile.TemporaryDirectory(prefix="draftproof-worker-")
        self._node = this_node(self._spec.subject.device)

    def node(self) -> bytes:
        """Return the Node that it is on."""
        return msgspec.json.encode(self._node)

    def start(self, deadline: float) -> None:
        """Start the worker process; `deadline` is that of this node if it is known, else 0."""
        root, subject = Path(self._folder.name), self._spec.subject
        if self._spec.files:
            for name, text in self._spec.files.items():
                path = root / "subject" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            subject = msgspec.structs.replace(subject, folder=str(root / "subject"))
        pool = Pool(subject, 1, root / "worker", deadline=deadline or None, memory=self._spec.memory or None)
        self._pool = pool.__enter__()

    def run(self, order: bytes) -> bytes:
        """Return what became of an order, as Ran. Raises WorkerStartError."""
        (answer,) = self._pool.run([msgspec.json.decode(order, type=Order)])
        answer = msgspec.structs.replace(answer, node=self._node.name)
        return msgspec.json.encode(Ran(answer=answer, deadline=self._pool.deadline))
