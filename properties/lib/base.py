"""The base of every value that travels between stages, and what is wrong with JSON that is none."""

from __future__ import annotations

import re
from typing import Any

import msgspec


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A frozen value with one JSON form; unknown fields are errors, never ignored."""


def explain(message: str, raw: Any) -> tuple[str, Any, str]:
    """Return (path, the value there, what is expected of it) for msgspec's sentence on some JSON."""
    match = re.fullmatch(r"(?P<problem>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", message)
    assert match is not None
    problem, path = match["problem"].removeprefix("Expected "), match["path"] or ""
    if named := re.search(r"(missing required|contains unknown) field `(\w+)`", problem):
        path = f"{path}.{named[2]}".lstrip(".")
        problem = "a value, it is missing" if named[1] == "missing required" else "none, the field is not supported"
    problem = "a number of at most 64 bits" if problem == "Number out of range" else problem
    for field, index in re.findall(r"(\w+)(?=\.|\[|$)|\[(\d+)\]", path):
        try:
            raw = raw[field] if field else raw[int(index)]
        except (KeyError, TypeError):  # a field that is missing, or a place in a mapping, which has no name here
            return path, None, problem
    return path, raw, problem
