"""Requests spread unevenly over ranks that run in lockstep (docs/semantics.md, S-RANK)."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import sampled
from draftproof.properties.values.scenario import Ranks, Request, Scenario

_SPREAD = ("first apart", "last apart", "in turn", "one idle")
_AT_ONCE = (True, False)
_SMALLEST = (True, True, False)


def with_ranks(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw which of two ranks serves each request: one has fewer, often one, or none at all.

    A batch of one mostly has a captured size of its own, so that ranks alone would run at different ones.
    """
    last, spread = len(scenario.requests) - 1, draw(sampled(_SPREAD))
    apart = {"first apart": {0}, "last apart": {last}, "in turn": set(range(1, last + 1, 2)), "one idle": set()}[spread]
    # Ranks with requests come first.
    others = int(0 in apart and last > 0)
    ranks = [int((index in apart) != bool(others)) if last else 0 for index in range(last + 1)]
    # Prompts that run beside each other are of different lengths.
    at_once = {ranks.index(rank) for rank in set(ranks)} if draw(sampled(_AT_ONCE)) else set()
    requests = tuple(
        replace(one, rank=rank, **_at_once(one) if index in at_once else {})
        for index, (one, rank) in enumerate(zip(scenario.requests, ranks, strict=True))
    )
    most = max(Counter((one.arrival, one.rank) for one in requests).values())
    memory = replace(scenario.memory, request_slots=max(scenario.memory.request_slots, most))
    sizes = scenario.graphs.sizes
    if sizes and draw(sampled(_SMALLEST)):
        sizes = tuple(sorted({1, *sizes}))
    return replace(
        scenario,
        requests=requests,
        memory=memory,
        ranks=Ranks(data=2),
        graphs=replace(scenario.graphs, sizes=sizes),
        schedule=replace(scenario.schedule, services=1),
        variant="none",
    )


def _at_once(request: Request) -> dict[str, int]:
    """Return the fields of a request that comes before the first step."""
    abort = request.abort_at
    return {"arrival": 0} if abort is None else {"arrival": 0, "abort_at": max(abort - request.arrival, 1)}


def without_ranks(scenario: Scenario) -> Scenario:
    """Return the scenario with all requests on one rank, which runs alone."""
    if scenario.ranks == Ranks():
        return scenario
    return replace(scenario, ranks=Ranks(), requests=tuple(replace(one, rank=0) for one in scenario.requests))
