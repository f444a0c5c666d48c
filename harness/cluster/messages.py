"""What a campaign's process and the bridge to a cluster say to each other: frozen values, one JSON line each."""

from __future__ import annotations

from typing import Literal

import msgspec

from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.properties.values.base import Value


class ClusterSpec(Value, frozen=True, kw_only=True):
    """What to join, and what its workers are.

    `workers` is how many there are to be (0: as many as the cluster has CPUs, or quarters of its GPUs), `memory` the
    most bytes of one (0: any). `files` are those of the subject's folder, by their paths in it: nodes share no disk.
    """

    address: str
    subject: SubjectSpec
    workers: int = 0
    memory: int = 0
    files: dict[str, str] = msgspec.field(default_factory=dict)


class Errand(Value, frozen=True, kw_only=True, tag="errand"):
    """An order under the number by which it is known while it is out."""

    ticket: int
    order: Order


class Leave(Value, frozen=True, kw_only=True, tag="leave"):
    """Nothing is asked for any more."""


class Joined(Value, frozen=True, kw_only=True, tag="joined"):
    """The cluster is there, and so many workers were asked of it."""

    workers: int


class Done(Value, frozen=True, kw_only=True, tag="done"):
    """What became of an errand; `deadline`: seconds that an order may take on that node."""

    ticket: int
    answer: Answer
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


class Node(Value, frozen=True, kw_only=True):
    """What a worker says of where it runs: `name` is for people, `sources` a digest of the code that it has."""

    name: str
    sources: str


class Ran(Value, frozen=True, kw_only=True):
    """An answer from a worker on a node."""

    answer: Answer
    deadline: float
