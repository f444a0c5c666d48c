"""A scenario with its requests served one after the other, and nothing kept from one for another (S-BATCH-10)."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.values.scenario import Scenario, pages_needed


def served_alone(scenario: Scenario) -> Scenario:
    """Return the scenario with one request row: each has all pages that it needs, and is served to its end."""
    order = sorted(range(len(scenario.requests)), key=lambda one: (scenario.requests[one].arrival, one))
    requests = (
        replace(request, arrival=order.index(index), abort_at=None) for index, request in enumerate(scenario.requests)
    )
    pages = max(pages_needed(scenario, request) for request in scenario.requests)
    memory = replace(scenario.memory, request_slots=1, pages=pages, checkpoint_slots=0)
    schedule = replace(scenario.schedule, max_batch=1, preemption=False, prefix_cache=False)
    return replace(scenario, requests=tuple(requests), memory=memory, schedule=schedule)
