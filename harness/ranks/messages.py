"""What a rank and its parent say to each other: length-prefixed msgpack, one message a frame."""

from __future__ import annotations

import os

import msgspec

from draftproof.properties.lib.base import Value
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.subjects.remote.messages import LENGTH
from draftproof.subjects.remote.values import SentTrace

LOCKSTEP = "lockstep"
"""The kind of a hang of ranks that wait for each other."""
RANKS_IN = "DRAFTPROOF_RANKS_IN"
"""The environment variable that says in which folder ranks meet; of a worker it is deleted when that is killed."""


class RankOrder(Value, frozen=True, kw_only=True, tag="rank order"):
    """Run the rank's part of a scenario."""

    scenario: Scenario
    script: Script


class RankTraced(Value, frozen=True, kw_only=True, tag="rank traced"):
    """The trace of a rank, and the numbers of patched hunks that ran in it."""

    trace: SentTrace
    hunks: tuple[int, ...] = ()


class RankRaised(Value, frozen=True, kw_only=True, tag="rank raised"):
    """The subject raised in a rank: the name of the type, the message, the innermost frame of ours, the traceback."""

    kind: str
    message: str
    where: str
    traceback: str
    hunks: tuple[int, ...] = ()


AnyRankAnswer = RankTraced | RankRaised
_ORDERS: msgspec.msgpack.Decoder[RankOrder] = msgspec.msgpack.Decoder(RankOrder)
_ANSWERS: msgspec.msgpack.Decoder[AnyRankAnswer] = msgspec.msgpack.Decoder(AnyRankAnswer)


def send(pipe: int, message: RankOrder | AnyRankAnswer) -> None:
    """Write a whole message. Raises BrokenPipeError if the other end is closed."""
    content = msgspec.msgpack.encode(message)
    data = memoryview(LENGTH.pack(len(content)) + content)
    while data:
        data = data[os.write(pipe, data) :]


def receive(pipe: int) -> RankOrder | None:
    """Wait for an order; None when no more will come."""
    head = _read(pipe, LENGTH.size)
    return _ORDERS.decode(_read(pipe, LENGTH.unpack(head)[0])) if head else None


def answer_in(buffer: bytes | bytearray) -> AnyRankAnswer | None:
    """Return the answer that has been read in whole, if it has. Raises msgspec.MsgspecError."""
    if len(buffer) < LENGTH.size or len(buffer) - LENGTH.size < LENGTH.unpack_from(buffer)[0]:
        return None
    return _ANSWERS.decode(memoryview(buffer)[LENGTH.size :])


def _read(pipe: int, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := os.read(pipe, count - len(data))):
        data += more
    return data
