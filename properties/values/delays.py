"""When the results of an engine step are there, if the host plans a step while another runs (S-OVERLAP-1)."""

from __future__ import annotations

from typing import Literal

Delay = Literal["none", "early", "late"]
"""When the results of a step are there: at its end, or a step later, of work that runs as soon as it can, or as late
as it may (S-OVERLAP-1)."""


def delay_of(overlap: tuple[Delay, ...], step: int) -> Delay:
    """Return the delay of an engine step (S-OVERLAP-1): none without an overlap."""
    return overlap[step % len(overlap)] if overlap else "none"


def lag(overlap: tuple[Delay, ...], step: int) -> int:
    """Return how many steps the results of an engine step come later than it (S-OVERLAP-1)."""
    return int(delay_of(overlap, step) != "none")
