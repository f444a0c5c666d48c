"""How a campaign stands: its clock, its coverage, its pace, and whether it is over."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from draftproof.fuzz.campaign.events import Facts
from draftproof.fuzz.campaign.schema import Memory
from draftproof.fuzz.campaign.settings import Limits
from draftproof.properties.values.verdict import Outcome

LEAST_STALL, STALL_SHARE = 300, 0.25
"""A campaign stalls after so many scenarios, and that share of all so far, without a new bin."""
_RECENT = 30.0


class Standing:
    """Of one call, from the moment that this is made. `possible` are the bins that can be covered at all."""

    def __init__(self, memory: Memory, limits: Limits, possible: Sequence[str]) -> None:
        self._memory, self._limits, self._possible = memory, limits, tuple(possible)
        self._within = frozenset(possible)
        self._started = time.monotonic()
        self._before = float(memory.facts.get("seconds", 0))
        found = [(known.first, known.at, name) for name, known in memory.bins.items() if name in self._within]
        self._hit = len(found)
        self._last_new = max(found, default=(-1, 0.0, ""))
        self._recent: deque[tuple[float, int]] = deque()

    @property
    def elapsed(self) -> float:
        """Seconds of this call."""
        return time.monotonic() - self._started

    @property
    def at(self) -> float:
        """The campaign's seconds, those of earlier calls among them."""
        return self._before + self.elapsed

    @property
    def hit(self) -> int:
        """Bins that can be covered and are."""
        return self._hit

    @property
    def holes(self) -> tuple[str, ...]:
        return tuple(name for name in self._possible if name not in self._memory.bins)

    def add(self, number: int, new: Sequence[str]) -> tuple[list[str], list[str]]:
        """Bins that a scenario was the first to reach: (those that can be covered, those that were said not to be)."""
        ours = [name for name in new if name in self._within]
        if ours:
            self._hit += len(ours)
            self._last_new = max(self._last_new, (number, self.at, ours[-1]))
        return ours, sorted(set(new) - self._within)

    def over(self) -> str:
        """Why the call ends now: time, examples, closure or stall; "" if it goes on."""
        limits, done = self._limits, self._memory.done
        if self.elapsed >= limits.time:
            return "time"
        if limits.examples is not None and done >= limits.examples:
            return "examples"
        if limits.until == "closure" and self._hit == len(self._possible):
            return "closure"
        if limits.until == "stall" and done - self._last_new[0] > max(LEAST_STALL, STALL_SHARE * done):
            return "stall"
        return ""

    def rate(self) -> float:
        """Scenarios a second in the last half minute."""
        now, recent = time.monotonic(), self._recent
        recent.append((now, self._memory.done))
        while len(recent) > 2 and now - recent[1][0] > _RECENT:
            recent.popleft()
        (then, before), (last, done) = recent[0], recent[-1]
        return (done - before) / (last - then) if last > then else 0.0

    def facts(self, *, doing: str, workers: int, replaced: int, troubles: int, unwritten: int) -> Facts:
        """What is told of it; the arguments are what others know."""
        memory, at = self._memory, self.at
        runs = memory.counts["stability_runs"]
        return Facts(
            at=round(at, 3),
            left=round(max(0.0, self._limits.time - self.elapsed), 3),
            scenarios=memory.done,
            rate=round(self.rate(), 3),
            hit=self._hit,
            possible=len(self._possible),
            last_new=self._last_new[2],
            since=round(at - self._last_new[1], 3),
            findings=sum(not one.merged for one in memory.findings.values()),
            crashes=memory.outcomes[Outcome.CRASH],
            hangs=memory.outcomes[Outcome.HANG],
            errors=memory.outcomes[Outcome.ERROR],
            stability=memory.counts["stability_same"] / runs if runs else 1.0,
            stability_runs=runs,
            troubles=troubles,
            replaced=replaced,
            workers=workers,
            corpus=len(memory.entries),
            unwritten=unwritten,
            doing=doing,
        )
