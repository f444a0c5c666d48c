"""Traces as msgpack and back: every value comes out as it went in, a wrong one so that a message can show it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from types import GenericAlias
from typing import Any

import msgspec
import numpy as np

from draftproof.properties.lib.base import Value
from draftproof.properties.values import observed
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.observed import Datum, Observed, Vector
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.properties.values.valuetypes import are_keys, are_of_channel

_ARRAY, _STRUCT, _ENUM, _FOREIGN = 1, 2, 3, 4
_PLAIN = frozenset({bool, float, str, bytes, type(None)})
_INTS = range(-(1 << 63), 1 << 63)
_NAMED: dict[str, Any] = {
    name: kind
    for name, kind in vars(observed).items()
    if isinstance(kind, type) and kind.__module__ == observed.__name__
}
_STRUCTS = frozenset(kind for kind in _NAMED.values() if issubclass(kind, Observed))
_ENUMS = frozenset(kind for kind in _NAMED.values() if issubclass(kind, IntEnum))
_encode = msgspec.msgpack.encode


class ForeignValue:
    """A value that no channel has: of it the other side keeps what a message shows."""

    def __init__(self, shown: str) -> None:
        self._shown = shown

    def __repr__(self) -> str:
        return self._shown


class SentColumn(Value, frozen=True, kw_only=True):
    """The values of a channel as msgpack: all of the channel's type (`typed`), or each packed for itself."""

    channel: str
    typed: bool
    values: bytes


class SentTrace(Value, frozen=True, kw_only=True):
    """A trace by columns: of each observation the number of its column, and its key."""

    subject: str
    channels: frozenset[str]
    columns: tuple[SentColumn, ...]
    numbers: list[int]
    keys: list[Key]


def to_wire(trace: Trace) -> SentTrace:
    """Return a trace as msgpack can hold it."""
    columns = trace.columns()
    number = {channel: place for place, channel in enumerate(columns)}
    keys = [one.key for one in trace.observations]
    return SentTrace(
        subject=trace.subject,
        channels=trace.channels,
        columns=tuple(_column(channel, values) for channel, values in columns.items()),
        numbers=[number[one.channel] for one in trace.observations],
        keys=keys if are_keys(keys) else [Key(*map(int, key)) for key in keys],
    )


def from_wire(sent: SentTrace) -> Trace:
    """Return a trace with the observations as the subject made them."""
    columns = [(column.channel, iter(_values(column))) for column in sent.columns]
    pairs = zip(sent.numbers, sent.keys, strict=True)
    observations = [Observation(columns[number][0], key, next(columns[number][1])) for number, key in pairs]
    return Trace(sent.subject, sent.channels, tuple(observations))


def _column(channel: str, values: list[Datum]) -> SentColumn:
    if channel in CHANNELS and are_of_channel(channel, values):
        with contextlib.suppress(OverflowError):  # an integer that msgpack does not have
            return SentColumn(channel=channel, typed=True, values=_encode(values, enc_hook=_pack))
    return SentColumn(channel=channel, typed=False, values=_encode([_pack(value) for value in values]))


def _values(column: SentColumn) -> list[Any]:
    if column.typed:
        return _typed(column.channel).decode(column.values)
    return [_unpack(value) for value in _contents.decode(column.values)]


@cache
def _typed(channel: str) -> msgspec.msgpack.Decoder[list[Any]]:
    # Of a vector the extension says whether it is an array.
    kind = Any if CHANNELS[channel].value == Vector else CHANNELS[channel].value
    return msgspec.msgpack.Decoder(GenericAlias(list, (kind,)), ext_hook=_unpacked_extension)


def _pack(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN or (kind is int and value in _INTS):
        return value
    if kind is tuple:
        return [_pack(part) for part in value]
    if kind is np.ndarray and not value.dtype.hasobject:
        return _extension(_ARRAY, [value.dtype.str, value.shape, value.flags.writeable, value.tobytes()])
    if kind in _STRUCTS:
        return _extension(_STRUCT, [kind.__name__, [_pack(part) for part in msgspec.structs.astuple(value)]])
    if kind in _ENUMS:
        return _extension(_ENUM, [kind.__name__, int(value)])
    return _extension(_FOREIGN, repr(value))


def _extension(code: int, content: object) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _encode(content))


def _unpack(value: Any) -> Any:
    return tuple(_unpack(part) for part in value) if isinstance(value, list) else value


def _unpacked_extension(code: int, data: memoryview) -> Any:
    return _OF_CODE[code](_contents.decode(data))


_contents: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(ext_hook=_unpacked_extension)


def _array(content: list[Any]) -> np.ndarray:
    kind, shape, writeable, data = content
    array = np.frombuffer(data, np.dtype(kind)).reshape(shape)
    return array.copy() if writeable else array


def _struct(content: list[Any]) -> Observed:
    name, fields = content
    made: Observed = _NAMED[name](*map(_unpack, fields))
    return made


def _enum(content: list[Any]) -> IntEnum:
    made: IntEnum = _NAMED[content[0]](content[1])
    return made


_OF_CODE: dict[int, Callable[[Any], Any]] = {_ARRAY: _array, _STRUCT: _struct, _ENUM: _enum, _FOREIGN: ForeignValue}
