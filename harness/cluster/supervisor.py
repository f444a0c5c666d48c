"""A worker on a node: an actor that has processes of its own, in which a subject runs.

So what a subject does to its process is told there as on a machine of one's own, and what ends this actor comes from
outside. What it is given and what it returns is JSON.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Protocol

import msgspec

from draftproof.harness.cluster.messages import ClusterSpec, Ran
from draftproof.harness.cluster.node import this_node


class NodeWorker(Protocol):
    """What does errands on a node: `NAME(given, node, folder)` makes one, with what a ClusterSpec has as `given`."""

    def start(self, deadline: float) -> None:
        """Start its processes; `deadline` is this node's own if it is known, else 0."""

    def run(self, work: bytes) -> Ran:
        """Return what became of an errand. What it raises counts as a worker that cannot start."""


class Supervisor:
    """The actor; its calls come one after the other, in the thread that it was made in."""

    def __init__(self, spec: bytes) -> None:
        asked = msgspec.json.decode(spec, type=ClusterSpec)
        self._folder = tempfile.TemporaryDirectory(prefix="draftproof-worker-")
        self._node = this_node(asked.device)
        module, _, name = asked.worker.partition(":")
        make = getattr(importlib.import_module(module), name)
        self._worker: NodeWorker = make(bytes(asked.given), self._node.name, Path(self._folder.name))

    def node(self) -> bytes:
        """Return the ClusterNode that it is on."""
        return msgspec.json.encode(self._node)

    def start(self, deadline: float) -> None:
        """Start what does the errands."""
        self._worker.start(deadline)

    def run(self, work: bytes) -> bytes:
        """Return what became of an errand, as Ran."""
        return msgspec.json.encode(self._worker.run(work))
