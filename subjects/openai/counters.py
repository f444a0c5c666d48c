"""Counters of a server's speculative decoding, from its /metrics: what a run added to them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping

from draftproof.properties.values.trace import Key, Observation
from draftproof.subjects.openai.http import Server

_NAMES = {
    "total.rounds": "num_drafts",
    "total.drafts": "num_draft_tokens",
    "total.accepted": "num_accepted_tokens",
    "total.accepted_at": "num_accepted_tokens_per_pos",
}
TOTALS = tuple(_NAMES)
_LINE = re.compile(r"^\w+:spec_decode_(\w+?)(?:_total)?(?:\{(.*)\})? ([0-9.e+]+)$", re.MULTILINE)
_PLACE = re.compile(r'position="(\d+)"')
_SETTLED, _TRIES = 0.05, 100
Counts = Mapping[tuple[str, int], int]


def counts(server: Server) -> Counts:
    """Return the counters by name and place, over all engines of the server. Raises ServerError."""
    found: dict[tuple[str, int], int] = {}
    for name, labels, value in _LINE.findall(server.get("/metrics")):
        place = _PLACE.search(labels)
        key = (name, int(place[1]) if place else -1)
        found[key] = found.get(key, 0) + int(float(value))
    return found


def settled(server: Server) -> Counts:
    """Return the counters once they stand still: the last step may be counted after its tokens are sent."""
    before = counts(server)
    for _ in range(_TRIES):
        time.sleep(_SETTLED)
        now = counts(server)
        if now == before:
            break
        before = now
    return before


def observed(before: Counts, after: Counts, steps: int) -> Iterator[Observation]:
    """Yield what was counted in between."""
    key = Key(-1, 0)
    added = {name: after[name] - before.get(name, 0) for name in after}
    for channel in TOTALS[:-1]:
        yield Observation(channel, key, added.get((_NAMES[channel], -1), 0))
    yield Observation(TOTALS[-1], key, tuple(added.get((_NAMES[TOTALS[-1]], place), 0) for place in range(steps)))
