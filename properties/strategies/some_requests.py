"""Some of a scenario's requests, changed."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import sampled
from draftproof.properties.values.scenario import Request, Scenario


def with_some(draw: st.DrawFn, scenario: Scenario, changed: Callable[[Request], Request]) -> Scenario:
    """Draw which requests are changed, two of three of them; the first is."""
    requests = (
        changed(request) if not index or draw(sampled((True, False, True))) else request
        for index, request in enumerate(scenario.requests)
    )
    return replace(scenario, requests=tuple(requests))
