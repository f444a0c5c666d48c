"""Count which hunks of patched sources had an effect.

A hunk that ran only while graphs were warmed up or captured has one if a graph was replayed in the same run.
"""

from __future__ import annotations

import builtins
import sys

from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.observed import LaunchRecord

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

    def end_run(self, *, replays: int) -> None:
        """At the end of a run, credit what was captured if graphs were replayed."""
        if replays:
            self._live |= self._captured
        self._captured.clear()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The hunks that ran in this process, captured or not."""
        return tuple(sorted(self._live | self._captured))

    @property
    def effective(self) -> tuple[str, ...]:
        """Names of the hunks that have had an effect."""
        return tuple(name for number, name in enumerate(self._names) if number in self._live)


def replays(ran: Evidence) -> int:
    """Count the launches of a run that were replays."""
    traces = [of for one in ran.ranks or (ran,) for of in (one.subject, one.varied) if of is not None]
    return sum(launch.replays > 0 for trace in traces for launch in trace.typed("graph.replay", LaunchRecord).values())


def _is_capturing() -> bool:
    """Ask the engine that is loaded here: it is a copy, and no other may be imported for this."""
    flag = sys.modules.get(CAPTURING)
    return flag is not None and flag.is_capturing()
