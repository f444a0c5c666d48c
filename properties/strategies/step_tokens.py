"""A budget of tokens for an engine step: less than all that are ready would take."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import integers
from draftproof.properties.values.scenario import Request, Scenario


def with_step_tokens(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw a budget about as large as a chunk, a round, both of them or two rounds, or one or two tokens.

    Requests come in early steps.
    """
    chunk, width = min(scenario.schedule.chunk, _longest(scenario)), scenario.width
    about = (width + 1, 2 * width - 1, width, chunk + width, width - 1, chunk, 2, 1)
    budget = max(1, about[draw(integers(0, len(about) - 1))])
    requests = tuple(map(_early, scenario.requests))
    return replace(scenario, requests=requests, schedule=replace(scenario.schedule, step_tokens=budget))


def without_step_tokens(scenario: Scenario) -> Scenario:
    """Return the scenario with steps in which all that are ready run."""
    if not scenario.schedule.step_tokens:
        return scenario
    return replace(scenario, schedule=replace(scenario.schedule, step_tokens=0))


def _longest(scenario: Scenario) -> int:
    return max(len(request.prompt) for request in scenario.requests)


def _early(request: Request) -> Request:
    return replace(request, arrival=min(request.arrival, 2))
