"""Python's garbage collector in a process that runs many scenarios."""

from __future__ import annotations

import gc


def tune_gc() -> None:
    """Leave what is there out of every collection to come, and collect more seldom.

    A scenario makes a hundred thousand observations, which all die at its end and of which few are garbage before:
    the usual thresholds look at them again and again.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
