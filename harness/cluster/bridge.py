"""The process between a campaign and a cluster: `python -P -m draftproof.harness.cluster.bridge FOLDER INDEX`.

Ray ends a process whose head is gone, starts threads and handles signals: none of that may happen to the campaign's
process. This process keeps nothing. When it ends, another one is started and given the errands that are still out.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO, Protocol

import msgspec

from draftproof.harness.cluster.messages import (
    ClusterNode,
    ClusterSpec,
    Done,
    Errand,
    Failed,
    FromCluster,
    Joined,
    Leave,
    Lost,
    Ran,
    ToCluster,
)
from draftproof.harness.own_sources import sources
from draftproof.harness.workers.worker import private_streams, say
from draftproof.subjects.process import die_with_parent

BRIDGE_MODULE = "draftproof.harness.cluster.bridge"
MOST_LOSSES = 20
"""An errand that lost this many workers is taken for what ends them."""
MOST_FAILURES = 3
"""This many workers in a row that cannot start are a mistake."""
ROOM_SECONDS = 600.0
"""How long a cluster may have no room for any worker: nodes of an autoscaler take minutes to start."""
_LOOK, _PATIENCE = 5.0, 60
"""Seconds between two looks at a silent cluster, and how long one may take."""


class Actor(Protocol):
    """A worker of a cluster."""

    def call(self, method: str, *arguments: Any) -> Future[Any]: ...


class Cluster(Protocol):
    """What is asked of a cluster."""

    def workers(self, device: str) -> int: ...
    def requirements(self, device: str) -> str: ...
    def actor(self, device: str, spec: bytes) -> Actor: ...
    def is_lost(self, error: BaseException) -> bool: ...
    def is_own(self, error: BaseException) -> bool: ...
    def look(self) -> None: ...
    def leave(self) -> None: ...


@dataclass(eq=False)
class _Worker:
    """An actor, and what it has in hand. `ready`: it may have an errand."""

    actor: Actor
    node: ClusterNode | None = None
    ready: bool = False
    errand: Errand | None = None


class Bridge:
    """Hands errands to workers of a cluster until it is told to leave.

    `say` tells the campaign.
    """

    def __init__(self, spec: ClusterSpec, say: Callable[[FromCluster], None]) -> None:
        self._spec, self._say = spec, say
        self._raw = msgspec.json.encode(spec)
        self.events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._waiting: deque[Errand] = deque()
        self._workers: list[_Worker] = []
        self._losses: Counter[int] = Counter()
        self._deadlines: dict[str, float] = {}
        self._failures, self._over, self._placed = 0, False, False
        self._cluster: Cluster

    def hear(self, message: ToCluster) -> None:
        """Take a message of the campaign, from any thread."""
        self.events.put(lambda: self._hear(message))

    def serve(self, cluster: Cluster) -> None:
        """Work until told to leave. Raises what a cluster raises that is gone."""
        self._cluster = cluster
        room = self._cluster.workers(self._spec.device)
        count = self._spec.workers or room
        self._say(Joined(workers=count, room=room))
        for _ in range(count):
            self._start()
        self._end = time.monotonic() + ROOM_SECONDS
        while not self._over:
            try:
                event = self.events.get(timeout=_LOOK)
            except Empty:
                _within(_PATIENCE, self._cluster.look)
                self._require_room()
                continue
            event()
            self._hand_out()

    def _require_room(self) -> None:
        if not self._placed and time.monotonic() > self._end:
            self._refuse(
                f"no worker got a place in {ROOM_SECONDS:.0f} s: expected a node with room for one, "
                f"{self._cluster.requirements(self._spec.device)}"
            )

    def _hear(self, message: ToCluster) -> None:
        if isinstance(message, Leave):
            self._over = True
        else:
            self._waiting.append(message)

    def _start(self) -> None:
        worker = _Worker(self._cluster.actor(self._spec.device, self._raw))
        self._workers.append(worker)
        self._call(worker, self._is_on, "node")

    def _call(self, worker: _Worker, then: Callable[[_Worker, Any], None], method: str, *arguments: Any) -> None:
        def on_done(future: Future[Any]) -> None:
            self.events.put(lambda: self._on_result(worker, future, then))

        worker.actor.call(method, *arguments).add_done_callback(on_done)

    def _on_result(self, worker: _Worker, future: Future[Any], then: Callable[[_Worker, Any], None]) -> None:
        error = future.exception()
        if error is None:
            then(worker, future.result())
        elif self._cluster.is_lost(error):
            self._lose(worker, str(error))
        elif self._cluster.is_own(error):
            self._fail(worker, str(error))
        else:
            raise error

    def _is_on(self, worker: _Worker, raw: bytes) -> None:
        self._placed = True
        worker.node = msgspec.json.decode(raw, type=ClusterNode)
        if worker.node.sources != sources():
            self._refuse(
                f"invalid node {worker.node.name}: expected the Draftproof of this machine (sources {sources()}), "
                f"not another (sources {worker.node.sources}); install the same commit there"
            )
            return
        self._call(worker, self._is_ready, "start", self._deadlines.get(worker.node.name, 0.0))

    def _is_ready(self, worker: _Worker, _: object) -> None:
        worker.ready = True

    def _hand_out(self) -> None:
        for worker in self._workers:
            if worker.ready and worker.errand is None and self._waiting:
                worker.errand = self._waiting.popleft()
                self._call(worker, self._is_done, "run", bytes(worker.errand.work))

    def _is_done(self, worker: _Worker, raw: bytes) -> None:
        ran, errand = msgspec.json.decode(raw, type=Ran), worker.errand
        assert errand is not None
        assert worker.node is not None
        worker.errand, self._failures = None, 0
        self._deadlines[worker.node.name] = ran.deadline
        self._losses.pop(errand.ticket, None)
        self._say(Done(ticket=errand.ticket, answer=ran.answer, deadline=ran.deadline))

    def _lose(self, worker: _Worker, why: str) -> None:
        """Replace a worker that is gone; what it had in hand comes first."""
        self._workers.remove(worker)
        self._say(Lost(why=" ".join(why.split())[:500]))
        if errand := worker.errand:
            self._losses[errand.ticket] += 1
            self._waiting.appendleft(errand)
            if self._losses[errand.ticket] >= MOST_LOSSES:
                self._refuse(f"{errand.name} lost its worker {MOST_LOSSES} times: {why}")
                return
        self._start()

    def _fail(self, worker: _Worker, why: str) -> None:
        self._failures += 1
        if self._failures >= MOST_FAILURES:
            self._refuse(f"a worker could not start, {MOST_FAILURES} times in a row: {why}")
            return
        self._lose(worker, why)

    def _refuse(self, reason: str) -> None:
        self._say(Failed(kind="refused", reason=reason))
        self._over = True


def _within(seconds: int, do: Callable[[], None]) -> None:
    """End this process if something takes longer: a call into a library may never return to Python."""
    signal.alarm(seconds)
    do()
    signal.alarm(0)


def main(folder: Path, join: Callable[[str], Cluster] | None = None) -> int:
    """Join the cluster of the first message, with Ray unless said otherwise, and serve; return the exit code."""
    orders, answers = private_streams()
    die_with_parent()
    spec = msgspec.json.decode(orders.readline(), type=ClusterSpec)
    bridge = Bridge(spec, lambda message: say(answers, message))
    # From now on: to join takes long, and a full pipe would stop the campaign's process.
    threading.Thread(target=_listen, args=(bridge, orders), daemon=True).start()
    # Ray puts the current folder on the paths of its workers.
    os.chdir(folder)
    try:
        cluster = (join or _ray())(spec.address)
    except BaseException as error:
        traceback.print_exc()
        say(answers, Failed(kind="away", reason=" ".join(f"{type(error).__name__}: {error}".split())))
        return 1
    bridge.serve(cluster)
    cluster.leave()
    return 0


def _ray() -> Callable[[str], Cluster]:
    from draftproof.harness.cluster.ray_cluster import RayCluster

    return RayCluster


def _listen(bridge: Bridge, orders: BinaryIO) -> None:
    for line in orders:
        bridge.hear(msgspec.json.decode(line, type=ToCluster))
    bridge.hear(Leave())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
