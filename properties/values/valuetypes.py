"""Whether a value is of the type that the channel table gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Any, get_args, get_origin

import msgspec
import numpy as np

from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.observed import Observed, Vector
from draftproof.properties.values.trace import Trace

LONGEST = 120
"""Characters of a wrong value that a message shows."""


def malformed(trace: Trace) -> Iterator[str]:
    """Yield one sentence for each value that is not of its channel's type."""
    checks = {name: _check(CHANNELS[name].value) for name in trace.index.keys() & CHANNELS.keys()}
    for channel, key, value in trace.observations:
        if channel in checks and not checks[channel](value):
            shown = repr(value)
            shown = shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."
            yield f"invalid {channel} {key}: {shown}: expected {named(CHANNELS[channel].value)}"


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


def _fields(kind: type[Observed]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.type) for field in msgspec.structs.fields(kind))


@lru_cache
def _check(kind: Any) -> Callable[[Any], bool]:
    """Return the test of one type."""
    if kind == Vector:
        return _is_vector
    if get_origin(kind) is tuple:
        items = get_args(kind)
        if items[1:] == (...,):
            return _all(_check(items[0]))
        return _each(tuple(map(_check, items)))
    if kind is int:
        return _is_int
    if issubclass(kind, Observed):
        return _struct(kind)
    if issubclass(kind, IntEnum):
        return lambda value: type(value) is kind
    return lambda value: isinstance(value, kind)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_vector(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype == np.float64 and value.ndim == 1 and not value.flags.writeable
    return isinstance(value, bytes) and len(value) % 8 == 0


def _all(item: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(map(item, value))


def _each(items: tuple[Callable[[Any], bool], ...]) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        if not isinstance(value, tuple) or len(value) != len(items):
            return False
        return all(check(part) for check, part in zip(items, value, strict=True))

    return fits


def _struct(kind: type[Observed]) -> Callable[[Any], bool]:
    fields = tuple((name, _check(of)) for name, of in _fields(kind))
    return lambda value: type(value) is kind and all(check(getattr(value, name)) for name, check in fields)
