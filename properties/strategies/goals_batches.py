"""Aims at who runs with whom: batch sizes and captured ones, arrivals, slots that are used again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import integers, sampled
from draftproof.properties.strategies.requests import endless
from draftproof.properties.values.paths import put_in
from draftproof.properties.values.scenario import Graphs, Request, Scenario

Draw = st.DrawFn
Wanted = Mapping[str, str]
BATCHES = frozenset({"rows", "bucket", "batch", "beside", "joined", "waited", "pages", "state", "captured"})
# Batches of several rows, whatever else there is to be.
_SEVERAL = {
    "mix": ("equal", "unequal", "zero among"),
    "rows": ("oversized",),
    "control": ("draft batch", "adaptive and draft batch"),
    "limit": ("batch", "tokens"),
    "variant": ("rows_permuted",),
    "choice": ("beside sampled",),
}
_LONG, _SHORT = 14, 4


def aim_batches(draw: Draw, scenario: Scenario, wanted: Wanted) -> Scenario:
    """Set arrivals and budgets first, then sizes for the batches that come of them."""
    if {"pages", "state", "waited"} & set(wanted):
        return _in_turn(draw, scenario, wanted)
    if {"beside", "joined"} & set(wanted):
        return _joining(draw, scenario, wanted)
    count = _count(draw, wanted)
    if count is None:
        return _with_sizes(draw, scenario, wanted, scenario.schedule.max_batch)
    bucket = wanted.get("bucket", "same")
    requests = copies(scenario, count)
    for index, request in enumerate(requests):
        changes: dict[str, Any] = {"arrival": 0, "stop_at": -1, "stops": ()}
        if bucket in ("larger", "more rows"):
            changes = {**changes, "arrival": min(index, 1) * 3, "budget": _LONG if not index else 8}
        elif bucket in ("smaller", "fewer rows"):
            # One goes on by itself or with another when the rest have ended together.
            changes["budget"] = _LONG if index < draw(integers(1, 2)) else _SHORT
        else:
            changes["budget"] = max(request.budget, 8)
        requests[index] = replace(request, **changes)
    scenario = put_in(_serving(scenario, requests), "schedule", max_batch=count, chunk=16)
    return _with_sizes(draw, scenario, wanted, count)


def _count(draw: Draw, wanted: Wanted) -> int | None:
    """Draw how many requests decode together; None if that does not matter."""
    if "batch" in wanted:
        return int(wanted["batch"][0])
    if wanted.get("mix") == "alone":
        return 1
    if wanted.get("bucket", "first") != "first":
        return draw(integers(3, 4))
    several = any(wanted.get(point) in values for point, values in _SEVERAL.items())
    return draw(integers(2, 4)) if several else None


def copies(scenario: Scenario, count: int) -> list[Request]:
    """Return `count` requests, alike but for their tokens where there are too few."""
    vocab, given = scenario.model.vocab, scenario.requests
    return [_shifted(given[index % len(given)], index // len(given), vocab) for index in range(count)]


def _shifted(request: Request, shift: int, vocab: int) -> Request:
    return replace(request, prompt=tuple((token + shift) % vocab for token in request.prompt))


def _serving(scenario: Scenario, requests: list[Request]) -> Scenario:
    return replace(scenario, requests=tuple(requests))


def _with_sizes(draw: Draw, scenario: Scenario, wanted: Wanted, most: int) -> Scenario:
    """Draw captured sizes for batches of up to `most` rows."""
    rows, bucket = wanted.get("rows"), wanted.get("bucket", "")
    if rows is None and not bucket:
        least = {"to 15": 7, "16 and more": 16}.get(wanted.get("captured", ""))
        return scenario if least is None else replace(scenario, graphs=Graphs(sizes=(max(most, least),)))
    every = tuple(range(1, most + 1))
    moved = bucket in ("smaller", "larger")
    sizes: dict[str, tuple[tuple[int, ...], ...]] = {
        "eager": ((),),
        "exact": (every,) if moved else ((most,), every) if bucket != "more rows" else ((most,), (2, most)),
        "padded": ((2, most + 1), (3, most + 2)) if moved else ((most + 1,), (most + 2,)),
        "oversized": tuple((size,) for size in every[:-1]) or ((1,),),
    }
    fitting = sizes[rows] if rows else sizes["exact"] + sizes["padded"]
    return replace(scenario, graphs=Graphs(sizes=tuple(sorted(set(draw(sampled(fitting)))))))


def _in_turn(draw: Draw, scenario: Scenario, wanted: Wanted) -> Scenario:
    """Let one request follow the other on its memory: the later ones wait, or arrive when it is free."""
    reuse = {wanted.get("pages"), wanted.get("state")} - {None}
    if wanted.get("waited") == "yes" and reuse == {"fresh"}:
        return _overtaken(scenario)
    if reuse == {"fresh"}:
        return _serving(scenario, copies(scenario, draw(integers(1, 2))))
    long, short = sorted(copies(scenario, 2), key=lambda one: len(one.prompt), reverse=True)
    long, short = (replace(endless(one), budget=budget) for one, budget in ((long, 9), (short, 3)))
    order = [short, long] if "after shorter" in reuse else [long, short]
    late = 40 if wanted.get("waited") == "no" else 1
    requests = [replace(one, arrival=index * late) for index, one in enumerate(order)]
    return _serving(_with_slots(scenario, 1), requests)


def _overtaken(scenario: Scenario) -> Scenario:
    """Let two requests of one page end together; of two that wait, the first takes both pages."""
    first = copies(scenario, 1)[0]
    vocab = scenario.model.vocab
    short = replace(endless(first), prompt=(first.prompt[0],), budget=3, arrival=0)
    longer = replace(endless(first), prompt=tuple(range(min(vocab, 4))) * 3, budget=4, arrival=1)
    requests = [short, _shifted(short, 1, vocab), longer, _shifted(short, 2, vocab)]
    requests[3] = replace(requests[3], arrival=1)
    return _serving(put_in(_with_slots(scenario, 2, chunk=16), "memory", page_size=5), requests)


def _with_slots(scenario: Scenario, count: int, **schedule: int) -> Scenario:
    """Make room for `count` requests at a time."""
    scenario = put_in(scenario, "schedule", max_batch=count, draft_batch=0, **schedule)
    return put_in(scenario, "memory", request_slots=count)


def _joining(draw: Draw, scenario: Scenario, wanted: Wanted) -> Scenario:
    """Let a request arrive when another one decodes already, or none."""
    joins = wanted.get("beside") == "prefill" or wanted.get("joined") == "beside decode"
    requests = copies(scenario, 2 if joins else draw(integers(1, 2)))
    requests[0] = replace(endless(requests[0]), arrival=0, budget=12)
    if len(requests) > 1:
        requests[1] = replace(requests[1], arrival=draw(integers(2, 4)) if joins else 0)
    return _with_sizes(draw, put_in(_serving(scenario, requests), "schedule", max_batch=2), wanted, 2)
