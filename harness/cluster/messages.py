"""What a pool, the bridge to a cluster and the nodes say to each other: frozen values, one JSON line each.

What workers are given, their errands and their answers are JSON that only both ends know.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from draftproof.properties.lib.base import Value

Device = Literal["cpu", "cuda"]


class ClusterSpec(Value, frozen=True, kw_only=True):
    """What to join, and what its workers are.

    `worker` is the MODULE:NAME of a NodeWorker, which is made of `given`. `workers` is how many there are to be (0: as
    many as the cluster has CPUs, or quarters of its GPUs).
    """

    address: str
    device: Device
    worker: str
    given: msgspec.Raw
    workers: int = 0


class Errand(Value, frozen=True, kw_only=True, tag="errand"):
    """What one worker is to do, under the number by which it is known while it is out; `name` is for people."""

    ticket: int
    name: str
    work: msgspec.Raw


class Leave(Value, frozen=True, kw_only=True, tag="leave"):
    """Nothing is asked for any more."""


class Joined(Value, frozen=True, kw_only=True, tag="joined"):
    """The cluster is there: how many workers were requested, and how many it has room for now."""

    workers: int
    room: int


class Done(Value, frozen=True, kw_only=True, tag="done"):
    """The result of an errand; `deadline`: seconds that an order may take on that node (0: it was not asked for)."""

    ticket: int
    answer: msgspec.Raw
    deadline: float


class Lost(Value, frozen=True, kw_only=True, tag="lost"):
    """A worker is gone, with its node or alone; what it had in hand runs again elsewhere."""

    why: str


class Failed(Value, frozen=True, kw_only=True, tag="failed"):
    """It does not go on like this: the cluster cannot be joined, or workers cannot start.

    `kind` "away" may pass: a head that is not there, or not there yet.
    """

    kind: Literal["away", "refused"]
    reason: str


ToCluster = Errand | Leave
FromCluster = Joined | Done | Lost | Failed


class ClusterNode(Value, frozen=True, kw_only=True):
    """What a worker says of where it runs: `name` is for people, `sources` a digest of the code that it has."""

    name: str
    sources: str


class Ran(Value, frozen=True, kw_only=True):
    """What a worker on a node made of an errand."""

    answer: msgspec.Raw
    deadline: float = 0.0
