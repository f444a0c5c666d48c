"""Mixed schedules: chunks beside verify rows, in token buckets that some launches fill, pad or exceed."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import integers
from draftproof.properties.values.paths import put_in
from draftproof.properties.values.scenario import ProbeModel, Request, Scenario


def with_mixed(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw buckets about as large as a chunk, a decode batch, or both, where anything is captured.

    Requests come one after another, so that chunks of some meet rounds of others, unless when they come was drawn for
    something else.
    """
    own, requests = scenario.schedule, scenario.requests
    if not (own.preemption or own.prefix_cache or own.step_tokens or scenario.has_aborts or scenario.adaptive):
        requests = tuple(_one_after_another(draw, requests))
    mixed = replace(scenario, requests=requests, schedule=replace(scenario.schedule, mixed=True))
    if not mixed.graphs.sizes or (isinstance(mixed.model, ProbeModel) and mixed.model.linear):
        return mixed
    chunk = min(scenario.schedule.chunk, max(len(request.prompt) for request in requests))
    width, size = scenario.width, mixed.graphs.sizes[-1]
    about = ((chunk + width,), (chunk,), (width, chunk + 2 * width), (chunk + 1, chunk + size * width), (2 * width,))
    tokens = tuple(sorted(set(about[draw(integers(0, len(about) - 1))])))
    return put_in(mixed, "graphs", tokens=tokens)


def without_mixed(scenario: Scenario) -> Scenario:
    """Return the scenario with chunks and verify rows in launches of their own."""
    if not scenario.schedule.mixed:
        return scenario
    apart = put_in(put_in(scenario, "schedule", mixed=False), "graphs", tokens=())
    return replace(apart, variant="none") if apart.variant == "unmixed" else apart


def _one_after_another(draw: st.DrawFn, requests: tuple[Request, ...]) -> list[Request]:
    arrival, made = 0, list[Request]()
    for request in requests:
        made.append(replace(request, arrival=arrival))
        arrival += draw(integers(1, 2))
    return made
