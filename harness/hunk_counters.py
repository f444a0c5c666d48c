"""Whether a patched hunk ever had an effect.

A hunk that ran only while graphs were warmed up or captured has one if a graph was replayed in the same run.
"""

from __future__ import annotations

import builtins
import sys

COUNTER = "_draftproof_count"
"""Name of the builtin that patched sources call with the number of their hunk."""
CAPTURING = "draftproof.engine.graphs.capturing"


class HunkCounters:
    """Receives the calls that patched sources make."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._live: set[int] = set()
        self._captured: set[int] = set()

    def install(self) -> None:
        setattr(builtins, COUNTER, self.hit)

    def hit(self, number: int) -> None:
        """Count one run of a hunk."""
        (self._captured if _is_capturing() else self._live).add(number)

    def ran(self, replays: int) -> None:
        """A run is over, in which graphs were replayed so often."""
        if replays:
            self._live |= self._captured
        self._captured.clear()

    @property
    def inert(self) -> tuple[str, ...]:
        """Names of the hunks that never had an effect."""
        return tuple(name for number, name in enumerate(self._names) if number not in self._live)


def _is_capturing() -> bool:
    """Ask the engine that is loaded here: it is a copy, and no other may be imported for this."""
    flag = sys.modules.get(CAPTURING)
    return flag is not None and flag.is_capturing()
