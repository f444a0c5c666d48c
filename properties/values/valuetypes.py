"""Check values against the types that the channel table gives."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from functools import cache
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
    for channel, key, value in trace.observations:
        if channel in CHANNELS and not _fits(CHANNELS[channel].value, value):
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


@cache
def _fields(kind: type[Observed]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.type) for field in msgspec.structs.fields(kind))


def _fits(kind: Any, value: Any) -> bool:
    """Return whether a value is of a type."""
    if kind == Vector:
        if isinstance(value, np.ndarray):
            return value.dtype == np.float64 and value.ndim == 1 and not value.flags.writeable
        return isinstance(value, bytes) and len(value) % 8 == 0
    if get_origin(kind) is tuple:
        items = get_args(kind)
        if not isinstance(value, tuple):
            return False
        kinds = items[:1] * len(value) if items[1:] == (...,) else items
        return len(kinds) == len(value) and all(map(_fits, kinds, value))
    if issubclass(kind, Observed):
        fields = _fields(kind)
        return type(value) is kind and all(_fits(of, getattr(value, name)) for name, of in fields)
    if issubclass(kind, IntEnum):
        return type(value) is kind
    return isinstance(value, kind) and not isinstance(value, bool)
