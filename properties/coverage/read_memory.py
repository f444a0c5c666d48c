"""Read what became of a request's memory: pages that it gave back and got again, and those that a cache had for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from draftproof.properties.evidence.evidence import Evidence

_DONE_BY_CACHE = {
    "evicted": "prefix_evictions",
    "copied": "prefix_copies",
    "shared": "prefix_shared",
    "continued": "prefix_hits_of_emitted",
}


class OfMemory(NamedTuple):
    """Values of coverpoints of one request, None where the point does not apply."""

    preempted: str | None
    resumed_in: str | None
    refilled: str | None
    prefix: str | None


def read_cache(evidence: Evidence) -> dict[str, str | None]:
    """Return whether a prefix cache did what it may do, by point; None without one."""
    if not evidence.scenario.schedule.prefix_cache:
        return dict.fromkeys(_DONE_BY_CACHE)
    done = evidence.prefixes.counts
    return {point: "yes" if done.get(name) else "no" for point, name in _DONE_BY_CACHE.items()}


def read_memory(evidence: Evidence, index: int) -> OfMemory:
    """Return what became of the memory of request number `index`."""
    schedule = evidence.schedule
    again = sorted(number for request, number in schedule.resumed if request == index)
    times = max((count for place, count in schedule.attempts.items() if place[0] == index), default=0)
    served = evidence.prefixes.served if evidence.scenario.schedule.prefix_cache else {}
    return OfMemory(
        preempted=("no", "once", "again")[min(times, 2)] if evidence.scenario.schedule.preemption else None,
        resumed_in=str(again[0]) if again and again[0] < 3 else "later" if again else None,
        refilled=_refilled(evidence, index, again, served) if again else None,
        prefix=_prefix(evidence, index, served[index, 0]) if (index, 0) in served else None,
    )


def _refilled(evidence: Evidence, index: int, again: list[int], served: Mapping[tuple[int, int], int]) -> str:
    """Return how what a request had computed came back: part of it from a cache, or all again, in chunks or at once."""
    if any(served.get((index, number)) for number in again):
        return "from cache"
    chunked = any(
        row.request == index and row.round in again and row.chunk == 1 and not row.phase
        for row in evidence.schedule.rows
    )
    return "in chunks" if chunked else "at once"


def _prefix(evidence: Evidence, index: int, served: int) -> str:
    """Return how much of the pages that may be served of a prompt was (S-CACHE)."""
    length, size = len(evidence.scenario.requests[index].prompt), evidence.page_size
    most = (length - max(1, evidence.form.lookahead)) // size * size
    return "nothing" if not served else "all" if served >= most else "in part"
