"""A host that plans a step while the one before runs: delays of results, and ends that nobody knows in time."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import integers, sampled
from draftproof.properties.values.delays import Delay
from draftproof.properties.values.paths import put_in
from draftproof.properties.values.scenario import Request, Scenario, pages_needed

DELAYS: tuple[tuple[Delay, ...], ...] = (
    ("late",),
    ("late", "early"),
    ("early",),
    ("late", "late", "none"),
    ("early", "late", "late", "none", "late"),
    ("late", "late", "early"),
)
"""What the delays of steps are, repeated: most of them late, as a mistake shows there at once."""

_ROOMY = (True, *(False,) * 7)
_STOPPED = (True, True, True, False)


def with_overlap(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw the delays of steps. Most requests end by a stop token before their budgets, so that they run on.

    Most of those without a controller have pages for two at a time: others get what these give back.
    """
    schedule = replace(scenario.schedule, overlap=draw(sampled(DELAYS)))
    requests = tuple(_ending(draw, scenario, one) for one in scenario.requests)
    made = replace(scenario, schedule=schedule, requests=requests)
    if made.dynamic or not draw(sampled(_ROOMY)):
        return made
    needs = sorted(pages_needed(made, request) for request in requests)
    return put_in(made, "memory", pages=min(made.memory.pages, sum(needs[-2:])))


def _ending(draw: st.DrawFn, scenario: Scenario, request: Request) -> Request:
    request = replace(request, min_tokens=0)
    is_open = request.sampling is not None and scenario.dynamic
    most = min(request.budget, scenario.memory.max_len - len(request.prompt)) - 2
    if is_open or most < 0 or not draw(sampled(_STOPPED)):
        return request
    return replace(request, stop_at=draw(integers(min(1, most), most)))


def without_overlap(scenario: Scenario) -> Scenario:
    """Return the scenario with a host that waits for the results of every step."""
    if not scenario.schedule.overlap:
        return scenario
    waiting = put_in(scenario, "schedule", overlap=())
    return replace(waiting, variant="none") if waiting.variant == "unoverlapped" else waiting
