"""Scenarios that tests pick from a drawn list."""

from draftproof.properties.values.scenario import Ranks, Scenario
from draftproof.reference.solve import solve


def rejects(scenario: Scenario) -> bool:
    """Return whether the first request has a round that accepts some of its forced drafts, but not all."""
    rounds = solve(scenario).requests[0].rounds
    return any(one.forced is not None and 0 < one.correct_len < one.drafts for one in rounds)


def tokens_in(scenario: Scenario) -> int:
    """Return how many tokens the prompts and budgets have: what a run takes."""
    return sum(len(request.prompt) + request.budget for request in scenario.requests)


def is_plain(scenario: Scenario) -> bool:
    """Return whether one engine serves it in launches of one kind, and waits for each of its steps."""
    schedule = scenario.schedule
    other = (
        schedule.mixed or schedule.disaggregation or schedule.overlap or schedule.preemption or schedule.prefix_cache
    )
    return scenario.ranks == Ranks() and not (other or scenario.dynamic or scenario.has_aborts)
