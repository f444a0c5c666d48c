"""Two engines: one runs prompts and hands requests over to one that decodes."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import sampled
from draftproof.properties.values.scenario import Scenario


def with_handover(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw a decode batch that is full soon, so that some wait for a place in it; or requests that come together."""
    batch = scenario.schedule.max_batch
    most = max(1, draw(sampled((batch - 1, 1, batch, 1))))
    schedule = replace(scenario.schedule, handover=True, services=1, max_batch=most)
    fits = len(scenario.requests) <= scenario.memory.request_slots
    latest = draw(sampled((0, 2, 1000, 1))) if fits else 1000
    requests = tuple(replace(one, arrival=min(one.arrival, latest)) for one in scenario.requests)
    return replace(scenario, requests=requests, schedule=schedule)


def without_handover(scenario: Scenario) -> Scenario:
    """Return the scenario with one engine that does everything."""
    if not scenario.schedule.handover:
        return scenario
    return replace(scenario, schedule=replace(scenario.schedule, handover=False))
