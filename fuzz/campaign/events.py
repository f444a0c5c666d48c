"""What happens in a campaign, as JSON lines: one write a line, so that a reader never sees half of one for long.

Kinds: start, progress, new_bin, finding, shrunk, crash, trouble, end. Every line has the unix time and the campaign's
own seconds.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

KINDS = ("start", "progress", "new_bin", "finding", "shrunk", "crash", "trouble", "end")
_QUIET = 30.0
_MOST_KEPT = 1000


class Facts(NamedTuple):
    """How a campaign stands: what the live screen shows and a progress line says.

    `at` are the campaign's seconds, `left` those of this call. `rate` is scenarios a second of late, `stability` the
    share of second runs that were as the first (1.0 before any). `last_new` is a bin's name, `since` the seconds since.
    """

    at: float
    left: float
    scenarios: int
    rate: float
    hit: int
    possible: int
    last_new: str
    since: float
    findings: int
    crashes: int
    hangs: int
    errors: int
    stability: float
    stability_runs: int
    troubles: int
    replaced: int
    workers: int
    corpus: int
    unwritten: int
    doing: str


class Events:
    """The file events.jsonl. A line that cannot be written is counted and left out: it is a copy of what the database
    holds."""

    def __init__(self, path: Path, at: float = 0.0) -> None:
        self.path = path
        self.at = at
        self.lost = 0
        self._handle = -1

    def say(self, kind: str, **facts: Any) -> None:
        line = json.dumps({"kind": kind, "time": round(time.time(), 3), "at": round(self.at, 3), **facts}) + "\n"
        try:
            handle = self._open()
            if os.write(handle, line.encode()) < len(line.encode()):
                # A full disk took half a line; the next one begins on its own.
                self.lost += 1
                self._close()
        except OSError:
            self.lost += 1

    def _open(self) -> int:
        """A process that was killed may have left half a line; ours begin on their own."""
        if self._handle < 0:
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._handle = handle
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                os.write(handle, b"\n")
        return self._handle

    def _close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def close(self) -> None:
        self._close()


class Troubles:
    """What went wrong beside the subject: kept in memory, whatever else can be written. The same again within half a
    minute is one."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._said: dict[str, float] = {}
        self.kept: list[tuple[float, str]] = []
        self.unwritten: list[tuple[float, str]] = []

    def say(self, what: str) -> None:
        now = time.monotonic()
        if now - self._said.get(what, -_QUIET) < _QUIET or len(self.kept) >= _MOST_KEPT:
            return
        self._said[what] = now
        self.kept.append((self._events.at, what))
        self.unwritten.append((self._events.at, what))
        self._events.say("trouble", what=what)

    def take(self) -> list[tuple[float, str]]:
        """Those that the database has not been told of."""
        taken, self.unwritten = self.unwritten, []
        return taken
