"""Python's garbage collector in a process that runs many scenarios."""

from __future__ import annotations

import gc


def tune_gc() -> None:
    """Leave the objects that exist now out of every collection to come, and collect less often.

    A scenario makes a hundred thousand observations, which all die at its end; few are garbage before. With the usual
    thresholds the collector looks at them again and again.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
