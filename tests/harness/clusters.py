"""A stand-in for a cluster, whose workers are no processes, and a bridge to it that ends when a test says so."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from draftproof.harness.cluster import bridge
from draftproof.harness.cluster.messages import ClusterNode, Ran
from draftproof.harness.own_sources import sources
from draftproof.harness.workers.messages import Answer, Order
from draftproof.harness.workers.start import Start, fork
from draftproof.properties.lib.base import Value
from tests.harness.doubles import passing


class GoneError(Exception):
    """A worker is gone."""


class OwnError(Exception):
    """A worker raised."""


@dataclass
class Cluster:
    """Workers that answer at once. `answer` may raise GoneError or OwnError for an order, `begin` when one starts."""

    answer: Callable[[Order], Answer] = passing
    begin: Callable[[], None] = lambda: None
    room: int = 3
    sources: str = field(default_factory=sources)
    started: int = 0

    def done(self, work: bytes, node: str) -> Value:
        """What a worker on a node answers to an errand."""
        return msgspec.structs.replace(self.answer(msgspec.json.decode(work, type=Order)), node=node)

    def workers(self, device: str) -> int:
        return self.room

    def actor(self, device: str, spec: bytes) -> Actor:
        self.started += 1
        return Actor(self, f"node {self.started % 2}")

    def requirements(self, device: str) -> str:
        return "that is a CPU"

    def is_lost(self, error: BaseException) -> bool:
        return isinstance(error, GoneError)

    def is_own(self, error: BaseException) -> bool:
        return isinstance(error, OwnError)

    def look(self) -> None:
        """It is there."""

    def leave(self) -> None:
        """Nothing is held."""


@dataclass
class Actor:
    cluster: Cluster
    node: str
    deadlines: list[float] = field(default_factory=list)

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(getattr(self, f"_{method}")(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def _node(self) -> bytes:
        self.cluster.begin()
        return msgspec.json.encode(ClusterNode(name=self.node, sources=self.cluster.sources))

    def _start(self, deadline: float) -> None:
        self.deadlines.append(deadline)

    def _run(self, work: bytes) -> bytes:
        said = msgspec.json.encode(self.cluster.done(work, self.node))
        return msgspec.json.encode(Ran(answer=msgspec.Raw(said), deadline=7.0))


def bridges(calls: Path, *kinds: Callable[[], Cluster]) -> Start:
    """Return a way to start bridges in forked processes: each call takes the next kind, the last one for ever.

    What a kind raises is why the cluster cannot be joined. `calls` counts them.
    """

    def serve(folder: Path, index: int) -> int:
        count = len(calls.read_bytes()) if calls.exists() else 0
        with calls.open("ab") as file:
            file.write(b".")
        return bridge.main(folder, lambda _address: kinds[min(count, len(kinds) - 1)]())

    return fork(serve)


def ends_after(answers: int, answer: Callable[[Order], Answer] = passing) -> Callable[[], Cluster]:
    """Return a cluster whose head goes after so many answers, with the process that speaks to it."""
    left = [answers]

    def until(order: Order) -> Answer:
        left[0] -= 1
        if left[0] < 0:
            os._exit(1)
        return answer(order)

    return lambda: Cluster(until)
