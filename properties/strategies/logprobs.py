"""Requests that ask for logprobs."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import sampled
from draftproof.properties.strategies.some_requests import with_some
from draftproof.properties.values.scenario import Scenario

_TOP = (2, 0, 1, 5, 3)


def with_logprobs(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw which requests ask for logprobs, and for how many of the likeliest tokens; the first does."""
    return with_some(draw, scenario, lambda request: replace(request, logprobs=draw(sampled(_TOP))))


def without_logprobs(scenario: Scenario) -> Scenario:
    """Return the scenario with requests that ask for none."""
    if scenario.most_logprobs is None:
        return scenario
    return replace(scenario, requests=tuple(replace(request, logprobs=None) for request in scenario.requests))
