"""Durations as users write and read them."""

from __future__ import annotations

import re

from draftproof.properties.lib.errors import DraftproofError

_LONGEST = 1000 * 3600.0
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh])", re.ASCII)


class DurationError(DraftproofError, ValueError):
    """A duration that cannot be read; the message names the option, its value and what is expected."""


def parse_duration(text: str, option: str) -> float:
    """Return the seconds of 90s, 10m or 1.5h. Raises DurationError."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < seconds <= _LONGEST:
        expected = "expected a number with a unit, as in 90s, 10m or 2h, more than 0 and at most 1000h"
        raise DurationError(f"invalid {option} {text!r}: {expected}")
    return seconds


def show_duration(seconds: float) -> str:
    """Return 0.42 s, 12 s, 3 min 5 s or 2 h 10 min."""
    if 0 < seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
