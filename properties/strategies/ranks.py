"""Requests spread unevenly over ranks that run in lockstep (docs/semantics.md, S-RANK)."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import sampled
from draftproof.properties.values.scenario import Ranks, Scenario

_SPREAD = ("first apart", "last apart", "in turn", "one idle")
_SMALLEST = (True, True, False)


def with_ranks(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw which of two ranks serves each request: one has fewer, often one, or none at all.

    A batch of one mostly has a captured size of its own, so that ranks alone would run at different ones.
    """
    last, spread = len(scenario.requests) - 1, draw(sampled(_SPREAD))
    apart = {"first apart": {0}, "last apart": {last}, "in turn": set(range(1, last + 1, 2)), "one idle": set()}[spread]
    # Ranks with requests come first.
    others = int(0 in apart and last > 0)
    requests = tuple(
        replace(one, rank=int((index in apart) != bool(others)) if last else 0)
        for index, one in enumerate(scenario.requests)
    )
    sizes = scenario.graphs.sizes
    if sizes and draw(sampled(_SMALLEST)):
        sizes = tuple(sorted({1, *sizes}))
    return replace(
        scenario,
        requests=requests,
        ranks=Ranks(data=2),
        graphs=replace(scenario.graphs, sizes=sizes),
        schedule=replace(scenario.schedule, services=1),
        variant="none",
    )


def without_ranks(scenario: Scenario) -> Scenario:
    """Return the scenario with all requests on one rank, which runs alone."""
    if scenario.ranks == Ranks():
        return scenario
    return replace(scenario, ranks=Ranks(), requests=tuple(replace(one, rank=0) for one in scenario.requests))
