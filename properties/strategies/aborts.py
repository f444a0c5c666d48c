"""Requests that are aborted: while they wait, in their prefill, between two rounds, or after they gave way."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import sampled
from draftproof.properties.values.scenario import Request, Scenario

_AFTER = (1, 3, 2, 4, 6, 0, 5, 8)
_SOME = (True, False)


def with_aborts(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw which requests are aborted, half of them, and in which step after they came; the first or the last is."""
    last = len(scenario.requests) - 1
    certain = draw(sampled((last, 0)))
    requests = (
        replace(request, abort_at=request.arrival + draw(sampled(_AFTER)))
        if index == certain or draw(sampled(_SOME))
        else request
        for index, request in enumerate(scenario.requests)
    )
    return replace(scenario, requests=tuple(requests))


def without_aborts(scenario: Scenario) -> Scenario:
    """Return the scenario with requests that are served to their ends."""
    return replace(scenario, requests=tuple(map(_served, scenario.requests))) if scenario.has_aborts else scenario


def _served(request: Request) -> Request:
    return replace(request, abort_at=None)
