"""Scenarios that tests pick from a drawn list."""

from __future__ import annotations

from draftproof.properties.values.scenario import Scenario
from draftproof.reference.solve import solve


def rejects(scenario: Scenario) -> bool:
    """Return whether the first request has a round that accepts some of its forced drafts, but not all."""
    rounds = solve(scenario).requests[0].rounds
    return any(one.forced is not None and 0 < one.correct_len < one.drafts for one in rounds)


def tokens_in(scenario: Scenario) -> int:
    """Return how many tokens the prompts and budgets have: what a run takes."""
    return sum(len(request.prompt) + request.budget for request in scenario.requests)
