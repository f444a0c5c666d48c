"""Counters of a server's speculative decoding, from its /metrics: what a run added to them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping

from draftproof.properties.values.trace import Key, Observation
from draftproof.subjects.openai.http import AnswerError, Server, ServerError

_NAMES = {
    "total.rounds": "num_drafts",
    "total.drafts": "num_draft_tokens",
    "total.accepted": "num_accepted_tokens",
    "total.accepted_at": "num_accepted_tokens_per_pos",
}
TOTALS = tuple(_NAMES)
_LINE = re.compile(r"^\w+:spec_decode_(\w+?)(?:_total)?(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_PLACE = re.compile(r'position="(\d+)"')
_SETTLED, _TRIES = 0.05, 100
Counts = Mapping[tuple[str, int], int]


def counts(server: Server) -> Counts:
    """Return the counters by name and place, over all engines of the server. Raises ServerError."""
    return counts_in(server.get("/metrics"))


def counts_in(metrics: str) -> Counts:
    """Return the counters of a text as /metrics has it, by name and place, over all engines. Raises AnswerError."""
    found: dict[tuple[str, int], int] = {}
    for name, labels, value in _LINE.findall(metrics):
        if name not in _NAMES.values():
            continue
        place = _PLACE.search(labels)
        key = (name, int(place[1]) if place else -1)
        found[key] = found.get(key, 0) + _whole(name, value)
    return found


def _whole(name: str, value: str) -> int:
    """Return a counter, which may be written as 3.0 or 1.5e+06. Raises AnswerError."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if number < 0 or not number.is_integer():
        raise AnswerError(f"/metrics answered spec_decode_{name} {value}: expected a whole number, 0 or more")
    return int(number)


def places_of(found: Counts) -> int:
    """Return for how many drafts of a round there is a counter of its own."""
    return sum(name == _NAMES["total.accepted_at"] for name, _ in found)


def accepted_between(before: Counts, after: Counts) -> tuple[int, tuple[int, ...]]:
    """Return rounds with drafts, and in how many of them the draft at each position was accepted.

    Raises ServerError for counters that are missing, or fell.
    """
    rounds, places = _NAMES["total.rounds"], _NAMES["total.accepted_at"]
    width = places_of(after)
    keys = [(rounds, -1), *((places, place) for place in range(width))]
    if not width or any(key not in after for key in keys):
        raise ServerError(
            f"expected counters vllm:spec_decode_{rounds}_total and ..{places}_total, as vLLM's /metrics have with a"
            " draft"
        )
    for name, place in keys:
        if before.get((name, place), 0) > after[name, place]:
            at = f" at position {place}" if place >= 0 else ""
            raise ServerError(
                f"{name}{at} fell from {before[name, place]} to {after[name, place]}: expected the earlier"
                " first, of one server that was not started anew"
            )
    drafts, *accepted = (after[key] - before.get(key, 0) for key in keys)
    return drafts, tuple(accepted)


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
