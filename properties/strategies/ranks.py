"""Requests spread unevenly over ranks that run in lockstep (docs/semantics.md, S-RANK)."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import sampled
from draftproof.properties.values.scenario import Ranks, Request, RoundPlan, Scenario
from draftproof.properties.values.validate import beside_ranks

_SPREAD = ("first apart", "last apart", "in turn", "one idle", "last apart")
_AT_ONCE = (True, True, False)
_PLAIN = (True, False)
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
    requests = tuple(replace(one, rank=rank) for one, rank in zip(scenario.requests, ranks, strict=True))
    if draw(sampled(_AT_ONCE)):
        # Prompts and batches that run beside each other are of different sizes.
        first = {ranks.index(rank) for rank in set(ranks)}
        requests = tuple(_soon(one, int(index not in first)) for index, one in enumerate(requests))
    if draw(sampled(_PLAIN)):
        # The rank with fewer requests has rounds without drafts, beside others that have some.
        fewer = min(range(2), key=lambda rank: (ranks.count(rank) or len(ranks), rank))
        requests = tuple(_plainer(one) if one.rank == fewer else one for one in requests)
    most = max(Counter((one.arrival, one.rank) for one in requests).values())
    memory = replace(scenario.memory, request_slots=max(scenario.memory.request_slots, most))
    sizes = scenario.graphs.sizes
    smallest = draw(sampled(_SMALLEST)) if sizes else False
    if smallest:
        sizes = tuple(sorted({1, *sizes}))
    return replace(
        scenario,
        requests=requests,
        memory=memory,
        ranks=Ranks(data=2),
        graphs=replace(scenario.graphs, sizes=sizes),
    )


def _plainer(request: Request) -> Request:
    """Return the request with two rounds without drafts before its own."""
    none = RoundPlan(num_drafts=0, num_correct=min(0, max(plan.num_correct for plan in request.rounds)))
    return replace(request, rounds=(none, none, *request.rounds))


def _soon(request: Request, latest: int) -> Request:
    """Return the request as one that comes by a step."""
    sooner = max(request.arrival - latest, 0)
    abort = None if request.abort_at is None else max(request.abort_at - sooner, 1)
    return replace(request, arrival=request.arrival - sooner, abort_at=abort)


def may_have_ranks(scenario: Scenario) -> bool:
    """Return whether a scenario has nothing that is not defined beside ranks."""
    return not beside_ranks(scenario)


def without_ranks(scenario: Scenario) -> Scenario:
    """Return the scenario with all requests on one rank, which runs alone."""
    if scenario.ranks == Ranks():
        return scenario
    most = max(Counter(one.arrival for one in scenario.requests).values())
    memory = replace(scenario.memory, request_slots=max(scenario.memory.request_slots, most))
    requests = tuple(replace(one, rank=0) for one in scenario.requests)
    return replace(scenario, ranks=Ranks(), requests=requests, memory=memory)


def first_ranks(scenario: Scenario) -> Scenario:
    """Return the scenario with its requests on the first ranks: those that serve none come last."""
    serving = sorted({one.rank for one in scenario.requests})
    requests = tuple(replace(one, rank=serving.index(one.rank)) for one in scenario.requests)
    return replace(scenario, requests=requests)
