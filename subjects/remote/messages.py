"""What the two sides say to each other: length-prefixed msgpack, one message a frame.

The side that asks sends an order and reads answers until one that is no LaunchAnnounced. The very first frame of the
other side is JSON, written by bootstrap.py before anything is imported that may be missing.
"""

from __future__ import annotations

import struct

import msgspec

from draftproof.properties.lib.base import Value
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Hook
from draftproof.subjects.remote.values import SentTrace

LENGTH = struct.Struct("<Q")
"""Before each message: how many bytes it has."""


class MakeSubject(Value, frozen=True, kw_only=True, tag="make"):
    """The first order: import and make the subject."""

    name: str
    settings: dict[str, str]


class AskChannels(Value, frozen=True, kw_only=True, tag="channels"):
    """Say which channels a run of the scenario reports."""

    scenario: Scenario


class RunScenario(Value, frozen=True, kw_only=True, tag="run"):
    """Run the scenario by the script."""

    scenario: Scenario
    script: Script


class AskHooks(Value, frozen=True, kw_only=True, tag="hooks"):
    """Say what the subject found in its engine."""


class CloseSubject(Value, frozen=True, kw_only=True, tag="close"):
    """Free what the subject holds."""


AnySubjectOrder = MakeSubject | AskChannels | RunScenario | AskHooks | CloseSubject


class SubjectMade(Value, frozen=True, kw_only=True, tag="made"):
    """The subject is there; `announces`: it says what it is about to do.

    `versions` are the versions of its packages; one that is not installed there has the version "".
    """

    name: str
    limits: Limits
    announces: bool
    versions: dict[str, str]


class ChannelsDeclared(Value, frozen=True, kw_only=True, tag="declared"):
    """The answer to AskChannels."""

    channels: frozenset[str]


class LaunchAnnounced(Value, frozen=True, kw_only=True, tag="announced"):
    """In the middle of a run: what the subject is about to do."""

    step: int
    launch: str


class RunTraced(Value, frozen=True, kw_only=True, tag="traced"):
    """The trace of a run."""

    trace: SentTrace


class HooksFound(Value, frozen=True, kw_only=True, tag="found"):
    """The answer to AskHooks."""

    hooks: tuple[Hook, ...]


class SubjectClosed(Value, frozen=True, kw_only=True, tag="closed"):
    """The last answer."""


class SubjectRaised(Value, frozen=True, kw_only=True, tag="raised"):
    """The subject raised: the name of the type, the message, the innermost frame as file:line name, the traceback.

    `lacks` is the module that could not be imported, if that is why; `known` are the names of subjects that are
    registered there, if the name is not among them. `is_condition`: it is a ConditionError, and its message says all.
    """

    kind: str
    message: str
    where: str
    traceback: str
    lacks: str = ""
    known: tuple[str, ...] | None = None
    is_condition: bool = False


AnySubjectAnswer = (
    SubjectMade | ChannelsDeclared | LaunchAnnounced | RunTraced | HooksFound | SubjectClosed | SubjectRaised
)
_ORDERS: msgspec.msgpack.Decoder[AnySubjectOrder] = msgspec.msgpack.Decoder(AnySubjectOrder)
_ANSWERS: msgspec.msgpack.Decoder[AnySubjectAnswer] = msgspec.msgpack.Decoder(AnySubjectAnswer)


def frame(message: AnySubjectOrder | AnySubjectAnswer) -> bytes:
    """Return a message as it goes over the pipe."""
    data = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(data)) + data


def order_of(data: bytes) -> AnySubjectOrder:
    """Return the order that a frame holds. Raises msgspec.MsgspecError."""
    return _ORDERS.decode(data)


def answer_of(data: bytes) -> AnySubjectAnswer:
    """Return the answer that a frame holds. Raises msgspec.MsgspecError."""
    return _ANSWERS.decode(data)
