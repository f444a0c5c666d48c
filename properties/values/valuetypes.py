"""Check values against the types that the channel table gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any, cast, get_args, get_origin

import msgspec
import numpy as np
from msgspec.structs import astuple

from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.observed import Observed, Vector
from draftproof.properties.values.trace import Key, Observation, Trace

_Test = Callable[[Sequence[Any]], bool]
_LONGEST = 120
"""Characters of a wrong value that a message shows."""


def malformed(trace: Trace) -> Iterator[str]:
    """Yield one sentence for each value, and for each part of a trace, that is not of exactly its type."""
    if type(trace.channels) is not frozenset or any(type(name) is not str for name in trace.channels):
        yield f"invalid channels {_shown(trace.channels)}: expected a frozenset of names"
    if _are_whole(trace):
        return
    for one in trace.observations:
        if type(one) is not Observation or type(one.channel) is not str:
            yield f"invalid observation {_shown(one)}: expected Observation(channel, key, value)"
            continue
        channel, key, value = one
        if not are_keys((key,)):
            yield f"invalid {channel} {_shown(key)}: expected a Key of whole numbers"
        elif channel in CHANNELS and not are_of_channel(channel, (value,)):
            yield f"invalid {channel} {key}: {_shown(value)}: expected {named(CHANNELS[channel].value)}"


def _are_whole(trace: Trace) -> bool:
    """Return whether all observations are as they have to be: looked at by columns, that takes a third of the time."""
    if not _are_all(Observation, trace.observations) or not _are_all(str, [one.channel for one in trace.observations]):
        return False
    known = (are_of_channel(name, values) for name, values in trace.columns().items() if name in CHANNELS)
    return are_keys([one.key for one in trace.observations]) and all(known)


def are_keys(keys: Sequence[object]) -> bool:
    """Return whether all are a Key, each of whole numbers."""
    return _are_all(Key, keys) and _are_all(int, chain.from_iterable(cast("Sequence[Key]", keys)))


def are_of_channel(name: str, values: Sequence[object]) -> bool:
    """Return whether all values are of exactly the type of a channel: a subclass may compare as it likes."""
    return _fits_channel(name)(values)


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
def _fits_channel(name: str) -> _Test:
    """Return the test of a channel's values; a name is looked up faster than a type."""
    return _fits(CHANNELS[name].value)


@cache
def _fits(kind: Any) -> _Test:
    """Return the test whether all of some values are of exactly a type."""
    if kind == Vector:
        return _are_vectors
    if get_origin(kind) is tuple:
        items = get_args(kind)
        if items[1:] == (...,):
            each = _fits(items[0])
            return lambda values: _are_all(tuple, values) and each([*chain.from_iterable(values)])
        parts = tuple(map(_fits, items))
        return lambda values: _are_all(tuple, values) and _are_rows(parts, values)
    if issubclass(kind, Observed):
        fields = tuple(_fits(of) for _, of in _fields(kind))
        return lambda values: _are_all(kind, values) and _are_rows(fields, [*map(astuple, values)])
    return partial(_are_all, kind)


def _are_all(kind: type, values: Iterable[Any]) -> bool:
    return {kind}.issuperset(map(type, values))


def _are_vectors(values: Sequence[Any]) -> bool:
    return all(map(_is_vector, values))


def _is_vector(value: Any) -> bool:
    if type(value) is np.ndarray:
        return value.dtype == np.float64 and value.ndim == 1 and not value.flags.writeable
    return type(value) is bytes and len(value) % 8 == 0


def _are_rows(tests: tuple[_Test, ...], rows: Sequence[tuple[Any, ...]]) -> bool:
    same = {len(tests)}.issuperset(map(len, rows))
    return same and all(test(column) for test, column in zip(tests, zip(*rows, strict=True), strict=bool(rows)))
