"""Reading and replacing fields of nested frozen values by a dotted path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


def get(value: Any, path: str) -> Any:
    """Return the field at "a.b.c"; None where a part of the path is None or is not a field of what is there."""
    for name in path.split("."):
        value = getattr(value, name) if name in getattr(value, "__struct_fields__", ()) else None
    return value


def put(value: T, path: str, new: Any) -> T:
    """Return the value with the field at "a.b.c" replaced. Raises AttributeError if there is no such field."""
    name, _, rest = path.partition(".")
    return msgspec.structs.replace(value, **{name: put(getattr(value, name), rest, new) if rest else new})


def put_in(value: T, part: str, **fields: Any) -> T:
    """Return the value with fields of one of its parts replaced."""
    return msgspec.structs.replace(value, **{part: msgspec.structs.replace(getattr(value, part), **fields)})


def first_difference(one: Any, other: Any, at: str = "") -> tuple[str, Any, Any]:
    """Return the path of the first difference of two JSON forms, below `at`, and what each has there."""
    pairs: list[tuple[str, Any, Any]] = []
    if isinstance(one, dict) and isinstance(other, dict):
        pairs = [(f"{at}.{name}".lstrip("."), one.get(name), other.get(name)) for name in other]
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = [(f"{at}[{i}]", *pair) for i, pair in enumerate(zip(one, other, strict=True))]
    found = (first_difference(mine, others, where) for where, mine, others in pairs if mine != others)
    return next(found, (at, one, other))


def brief(value: Any) -> str:
    """Abbreviate a long value."""
    text = str(value)
    return text if len(text) <= 80 else f"{text[:60]}.. ({len(value)} items)"


def lower(value: int, least: int) -> Iterator[int]:
    """Yield what to try in place of a number: the least, half way, three quarters, one less."""
    for one in dict.fromkeys((least, (value + least) // 2, (3 * value + least) // 4, value - 1)):
        if least <= one < value:
            yield one


def without(count: int) -> Iterator[list[int]]:
    """Yield which places of `count` to keep: each alone, then all but a half, all but a quarter, .. all but one."""
    seen: set[tuple[int, ...]] = set()
    chosen = [[place] for place in range(count)] if count > 1 else []
    width = count // 2
    while width:
        starts = range(0, count, width)
        chosen += [[place for place in range(count) if not start <= place < start + width] for start in starts]
        width //= 2
    for places in chosen:
        if places and tuple(places) not in seen:
            seen.add(tuple(places))
            yield places
