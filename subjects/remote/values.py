"""Observations as msgpack and back: every value comes out as it went in, a wrong one so that a message can show it."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np

from draftproof.properties.values import observed
from draftproof.properties.values.observed import Observed
from draftproof.properties.values.trace import Key, Observation, Trace

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


def to_wire(trace: Trace) -> list[tuple[str, list[int], Any]]:
    """Return the observations of a trace as msgpack can hold them."""
    return [(channel, [int(part) for part in key], _pack(value)) for channel, key, value in trace.observations]


def from_wire(observations: list[tuple[str, list[int], Any]]) -> tuple[Observation, ...]:
    """Return observations as the subject made them."""
    return tuple(Observation(channel, Key(*key), _unpack(value)) for channel, key, value in observations)


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


def unpacked_extension(code: int, data: memoryview) -> Any:
    """Return the value that an extension holds: the hook of a msgpack decoder."""
    return _OF_CODE[code](_contents.decode(data))


_contents: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(ext_hook=unpacked_extension)


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
