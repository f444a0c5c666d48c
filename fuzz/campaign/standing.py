"""How a campaign stands: its clock, its coverage, its pace, and whether it is over."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from draftproof.fuzz.campaign.settings import CampaignLimits
from draftproof.fuzz.campaign.store import Store
from draftproof.harness.workers.messages import Answer
from draftproof.properties.values.verdict import Outcome

LEAST_STALL, STALL_SHARE = 300, 0.25
"""A campaign stalls after this many scenarios, and this share of all so far, without a new bin."""
_RECENT = 30.0
_QUIET = 30.0
_MOST_TROUBLES = 1000


class CampaignStatus(NamedTuple):
    """How a campaign stands: what the live screen shows, and a row of the table of progress.

    `at` are the campaign's seconds, `left` the seconds that this call has left. `rate` is recent scenarios a second,
    `stability` the share of second runs that equalled the first (1.0 before any). `last_new` is a bin's name, `since`
    the seconds since it was new.
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
    doing: str


class CampaignProgress:
    """Clock, coverage and pace of one call, from the moment that this is made.

    `possible` are the bins that can be covered at all.
    """

    def __init__(self, store: Store, limits: CampaignLimits, possible: Sequence[str]) -> None:
        self._store, self._limits, self._possible = store, limits, tuple(possible)
        self._within = frozenset(possible)
        self._started = time.monotonic()
        self._before = float(store.facts().get("seconds", 0))
        reached = [(first, at, name) for name, _, first, at in store.bins() if name in self._within]
        self._hit = len(reached)
        self._last_new = max(reached, default=(-1, 0.0, ""))
        self._outcomes = Counter(store.sums().outcomes)
        self._recent: deque[tuple[float, int]] = deque()

    @property
    def elapsed(self) -> float:
        """Seconds of this call."""
        return time.monotonic() - self._started

    @property
    def at(self) -> float:
        """Return the campaign's seconds, including earlier calls."""
        return self._before + self.elapsed

    @property
    def done(self) -> int:
        """Return how many scenarios are done, including earlier calls."""
        return self._outcomes.total()

    @property
    def holes(self) -> tuple[str, ...]:
        reached = {name for name, *_ in self._store.bins()}
        return tuple(name for name in self._possible if name not in reached)

    def add(self, answer: Answer, new: Sequence[str]) -> list[str]:
        """Count an answer; return its new bins that were declared impossible."""
        self._outcomes[answer.outcome.value] += 1
        ours = [name for name in new if name in self._within]
        if ours:
            self._hit += len(ours)
            self._last_new = max(self._last_new, (answer.number, self.at, ours[-1]))
        return sorted(set(new) - self._within)

    def end_reason(self) -> str:
        """Return why the call ends now: time, examples, closure or stall; "" if it goes on."""
        limits, done = self._limits, self.done
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
        """Return scenarios a second in the last half minute."""
        now, recent = time.monotonic(), self._recent
        recent.append((now, self.done))
        while len(recent) > 2 and now - recent[1][0] > _RECENT:
            recent.popleft()
        (then, before), (last, done) = recent[0], recent[-1]
        return (done - before) / (last - then) if last > then else 0.0

    def status(self, *, doing: str, workers: int, replaced: int, troubles: int) -> CampaignStatus:
        """Return how the campaign stands; the arguments are what others know."""
        at, counts = self.at, self._store.counts()
        runs = counts.get("stability_runs", 0)
        return CampaignStatus(
            at=round(at, 3),
            left=round(max(0.0, self._limits.time - self.elapsed), 3),
            scenarios=self.done,
            rate=round(self.rate(), 3),
            hit=self._hit,
            possible=len(self._possible),
            last_new=self._last_new[2],
            since=round(at - self._last_new[1], 3),
            findings=self._store.count("findings WHERE merged = ''"),
            crashes=self._outcomes[Outcome.CRASH.value],
            hangs=self._outcomes[Outcome.HANG.value],
            errors=self._outcomes[Outcome.ERROR.value],
            stability=counts.get("stability_same", 0) / runs if runs else 1.0,
            stability_runs=runs,
            troubles=troubles,
            replaced=replaced,
            workers=workers,
            doing=doing,
        )


class Troubles:
    """What goes wrong beside the subject. The same again within half a minute is one."""

    def __init__(self, store: Store, standing: CampaignProgress) -> None:
        self._store, self._standing = store, standing
        self._last: dict[str, float] = {}
        self.kept: list[str] = []

    def add(self, what: str) -> None:
        """Keep a trouble. Raises DiskError if it can be kept for this call only."""
        now = time.monotonic()
        if now - self._last.get(what, -_QUIET) < _QUIET or len(self.kept) >= _MOST_TROUBLES:
            return
        self._last[what] = now
        self.kept.append(what)
        self._store.add("troubles", self._standing.at, what)
