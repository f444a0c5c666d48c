"""Check values against the types that the channel table gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, get_args, get_origin

import msgspec
import numpy as np
from msgspec.structs import astuple

from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.observed import Observed, Vector
from draftproof.properties.values.trace import Key, Observation, Trace

_LONGEST = 120
"""Characters of a wrong value that a message shows."""


def malformed(trace: Trace) -> Iterator[str]:
    """Yield one sentence for each value, and for each part of a trace, that is not of exactly its type."""
    if type(trace.channels) is not frozenset or any(type(name) is not str for name in trace.channels):
        yield f"invalid channels {_shown(trace.channels)}: expected a frozenset of names"
    for one in trace.observations:
        if type(one) is not Observation or type(one.channel) is not str:
            yield f"invalid observation {_shown(one)}: expected Observation(channel, key, value)"
            continue
        channel, key, value = one
        if type(key) is not Key or not _are_all(int, key):
            yield f"invalid {channel} {_shown(key)}: expected a Key of whole numbers"
        elif channel in CHANNELS and not _fits_channel(channel)(value):
            yield f"invalid {channel} {key}: {_shown(value)}: expected {named(CHANNELS[channel].value)}"


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."


def named(kind: Any) -> str:
    """Return a type as a message names it."""
    if kind == Vector:
        return "bytes of 64-bit integers or a read-only float64 array [lanes]"
    if get_origin(kind) is tuple:
        item, *rest = get_args(kind)
        return f"a tuple of {named(item)}" if rest == [...] else f"a tuple ({', '.join(map(named, (item, *rest)))})"
    if issubclass(kind, Observed):
        return f"{kind.__name__}({', '.join(f'{name}: {_brief(of)}' for name, of in _fields(kind))})"
    return str(kind.__name__)


def _brief(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and issubclass(kind, Observed) else named(kind)


@cache
def _fields(kind: type[Observed]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.type) for field in msgspec.structs.fields(kind))


@cache
def _fits_channel(name: str) -> Callable[[Any], bool]:
    """Return the test of a channel's values; a name is looked up faster than a type."""
    return _fits(CHANNELS[name].value)


@cache
def _fits(kind: Any) -> Callable[[Any], bool]:
    """Return the test whether a value is of exactly a type: a subclass may compare as it likes."""
    if kind == Vector:
        return _is_vector
    if get_origin(kind) is tuple:
        items = get_args(kind)
        if items[1:] == (...,):
            if items[0] in (int, float):
                return lambda value: type(value) is tuple and _are_all(items[0], value)
            each = _fits(items[0])
            return lambda value: type(value) is tuple and all(map(each, value))
        return partial(_are_parts, tuple(map(_fits, items)))
    if issubclass(kind, Observed):
        parts = tuple(_fits(of) for _, of in _fields(kind))
        return lambda value: type(value) is kind and _are_parts(parts, astuple(value))
    return lambda value: type(value) is kind


def _are_all(kind: type, values: Any) -> bool:
    return {kind}.issuperset(map(type, values))


def _is_vector(value: Any) -> bool:
    if type(value) is np.ndarray:
        return value.dtype == np.float64 and value.ndim == 1 and not value.flags.writeable
    return type(value) is bytes and len(value) % 8 == 0


def _are_parts(tests: tuple[Callable[[Any], bool], ...], value: Any) -> bool:
    same = type(value) is tuple and len(value) == len(tests)
    return same and all(is_fit(part) for is_fit, part in zip(tests, value, strict=True))
