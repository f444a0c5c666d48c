"""Two engines: one runs prompts and hands requests over to one that decodes."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import sampled
from draftproof.properties.strategies.lasting import lasting
from draftproof.properties.values.paths import put_in
from draftproof.properties.values.scenario import Request, Scenario

_ROOMY = (True, False)
_ROUNDS = 2


def with_handover(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw a decode batch that is full soon, so that some wait for a place in it, and requests that come together.

    All but the last have budgets for rounds, and no stop in front of them; half have rows for all of them at once.
    """
    batch, count = scenario.schedule.max_batch, len(scenario.requests)
    most = max(1, draw(sampled((1, count - 2, batch, 1))))
    slots = max(scenario.memory.request_slots, count if draw(sampled(_ROOMY)) else 1)
    made = put_in(put_in(lasting(scenario, _ROUNDS), "memory", request_slots=slots), "schedule", handover=True)
    latest = draw(sampled((0, 0, 2, 1000))) if count <= slots else 1000
    requests = tuple(replace(one, arrival=min(one.arrival, latest)) for one in made.requests)
    requests = (*map(_decoded, requests[:-1]), requests[-1])
    return replace(made, requests=requests, schedule=replace(made.schedule, max_batch=most))


def _decoded(request: Request) -> Request:
    """Return the request with its stop token in the second half of its text, if it has one."""
    return replace(request, stop_at=max(request.stop_at, request.budget // 2)) if request.stop_at >= 0 else request


def without_handover(scenario: Scenario) -> Scenario:
    """Return the scenario with one engine that does everything."""
    if not scenario.schedule.handover:
        return scenario
    return replace(scenario, schedule=replace(scenario.schedule, handover=False))
