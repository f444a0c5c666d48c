"""Requests that last for some rounds, and the memory that they then need."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.lib.paths import put_in
from draftproof.properties.values.scenario import RoundPlan, Scenario, pages_needed
from draftproof.properties.values.tree import TreeShape, chain

_MOST = 5
"""Of many requests the others are there for their number."""


def lasting(scenario: Scenario, rounds: int) -> Scenario:
    """Return the scenario with budgets that last for `rounds` rounds in which all drafts are accepted.

    This holds for the first requests. `max_len` grows with the budgets if it cut no request before; otherwise it cuts
    none before these rounds. There are as many more pages as the requests can now come to need.
    """
    least = rounds * scenario.width
    requests = tuple(
        replace(one, budget=max(one.budget, least)) if place < _MOST else one
        for place, one in enumerate(scenario.requests)
    )
    before, after = (max(len(one.prompt) + one.budget for one in some) for some in (scenario.requests, requests))
    memory = scenario.memory
    cut = max(memory.max_len, max(len(one.prompt) for one in requests) + least)
    max_len = memory.max_len + after - before if memory.max_len >= before else cut
    made = put_in(replace(scenario, requests=requests), "memory", max_len=max_len)
    return with_pages_of(made, scenario)


def with_pages_of(made: Scenario, scenario: Scenario) -> Scenario:
    """Return what was made of a scenario with as many pages more as its requests came to need more."""
    return put_in(made, "memory", pages=scenario.memory.pages + _pages(made) - _pages(scenario))


def rejecting(scenario: Scenario) -> Scenario:
    """Return the scenario with a round of each request that accepts some drafts and not all."""

    right = scenario.steps // 2
    # Of a tree, too, a chain will do.
    shape = TreeShape(parents=chain(scenario.steps), path=tuple(range(1, right + 1))) if scenario.tree else None

    def some(plan: RoundPlan) -> RoundPlan:
        return replace(plan, num_drafts=scenario.steps, num_correct=right, shape=shape)

    requests = tuple(
        one
        if any(0 <= plan.num_correct < plan.num_drafts for plan in one.rounds)
        else replace(one, rounds=(some(one.rounds[-1]), *one.rounds))
        for one in scenario.requests
    )
    return replace(scenario, requests=requests)


def _pages(scenario: Scenario) -> int:
    return sum(pages_needed(scenario, request) for request in scenario.requests)
