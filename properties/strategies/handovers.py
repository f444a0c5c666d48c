"""Two engines: one runs prompts and hands requests over to one that decodes."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import sampled
from draftproof.properties.values.scenario import Request, Scenario


def with_handover(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw a smaller decode batch, so that some wait for a place in it; requests come in early steps."""
    batch = scenario.schedule.max_batch
    most = max(1, draw(sampled((batch - 1, 1, batch))))
    schedule = replace(scenario.schedule, handover=True, services=1, max_batch=most)
    return replace(scenario, requests=tuple(map(_early, scenario.requests)), schedule=schedule)


def without_handover(scenario: Scenario) -> Scenario:
    """Return the scenario with one engine that does everything."""
    if not scenario.schedule.handover:
        return scenario
    return replace(scenario, schedule=replace(scenario.schedule, handover=False))


def _early(request: Request) -> Request:
    return replace(request, arrival=min(request.arrival, 2))
