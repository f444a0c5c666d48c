"""Numbers and times as text and pages write them."""

from __future__ import annotations

import time


def count(number: float) -> str:
    """12,345; 3.2 below a hundred if it is not whole."""
    if number == int(number):
        return f"{int(number):,}"
    return f"{number:.2g}" if abs(number) < 10 else f"{number:,.1f}" if abs(number) < 100 else f"{number:,.0f}"


def short(number: int) -> str:
    """Return a count in at most four characters: 7, 412, 3.1k, 18k, 2.4M."""
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if number >= size:
            part = number / size
            return f"{part:.1f}{unit}" if part < 9.95 else f"{part:.0f}{unit}"
    return str(number)


def share(part: float, whole: float) -> str:
    """Return a part in per cent: 100 % only if it is all of it, 0 % only if it is nothing."""
    if not whole:
        return "-"
    exact = 100 * part / whole
    if 0 < part < whole:
        exact = min(max(exact, 0.1), 99.9)
    return f"{exact:.1f} %" if exact not in (0, 100) else f"{exact:.0f} %"


def date(unix: float) -> str:
    """Return a moment in UTC, so that a report is the same wherever it is written."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(unix))


def plural(number: int, noun: str) -> str:
    """1 finding, 2 findings."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"
