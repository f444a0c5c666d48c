"""Errors of a fault's own text: it names what is no longer there, and so is not the mistake that it was."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_FRAME = re.compile(r'\s*File "(.+)", line (\d+), in (.+)')
_ERROR = re.compile(
    r"(?:\w+\.)*(NameError|UnboundLocalError|AttributeError|ImportError|ModuleNotFoundError|TypeError): .+"
)
_ARGUMENTS = re.compile(
    r"unexpected keyword argument|multiple values for (?:keyword )?argument|missing \d+ required|"
    r"takes (?:no|from \d+ to \d+|\d+) (?:positional )?arguments?|invalid keyword argument"
)
_OF_NONE = "AttributeError: 'NoneType' object has no attribute"
"""A value that is missing is what many a mistake is about."""
_LOOKUPS = ("__getattr__", "__getattribute__")
"""What looks a name up raises in place of the line that asks."""


def own_error(trace: str, folder: str, own: Mapping[str, Sequence[int]]) -> str:
    """Return the error and its place if a line that a fault wrote raised for a name or an argument that is not there.

    `trace` is a traceback with whatever caused it, `folder` the copy of the sources that ran, and `own` path -> the
    lines of a fault in it. Returns "" if there is no such error.
    """
    places = {(f"{folder}/{path}", line): path for path, lines in own.items() for line in lines}
    last: tuple[str, int] = ("", 0)
    for line in trace.splitlines():
        if frame := _FRAME.match(line):
            last = last if frame[3] in _LOOKUPS else (frame[1], int(frame[2]))
        elif _is_of_names(line) and last in places:
            return f"its own line in {places[last]} raises {line}"
    return ""


def _is_of_names(line: str) -> bool:
    """Return whether a line of a traceback says that a name, an attribute or an argument does not exist."""
    error = _ERROR.match(line)
    if error is None or _OF_NONE in line:
        return False
    return error[1] != "TypeError" or _ARGUMENTS.search(line) is not None
