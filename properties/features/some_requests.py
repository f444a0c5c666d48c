"""Requests of a scenario, changed: some of them, or when they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.lib.paths import put_in
from draftproof.properties.values.scenario import Request, Scenario

_SOON = 1


def together(scenario: Scenario) -> Scenario:
    """Return the scenario with requests that arrive in the first steps, and a row for each that arrives in one step."""
    requests = tuple(replace(one, arrival=min(one.arrival, _SOON)) for one in scenario.requests)
    return put_in(replace(scenario, requests=requests), "memory", request_slots=slots_for(scenario, requests))


def slots_for(scenario: Scenario, requests: Sequence[Request]) -> int:
    """Return how many rows are needed: those of the scenario, and one for each request that arrives in one step."""
    return max(scenario.memory.request_slots, *Counter(one.arrival for one in requests).values())


def sooner(requests: Sequence[Request]) -> tuple[Request, ...]:
    """Return requests that come in half the time, each a step behind the one before at least."""
    arrival, made = -1, list[Request]()
    for request in requests:
        arrival = max(arrival + 1, request.arrival // 2)
        made.append(replace(request, arrival=arrival))
    return tuple(made)


def with_some(choose: Choose, scenario: Scenario, changed: Callable[[Request], Request]) -> Scenario:
    """Draw which requests are changed, two of three of them; the first is."""
    requests = (
        changed(request) if not index or choose.one_of((True, False, True)) else request
        for index, request in enumerate(scenario.requests)
    )
    return replace(scenario, requests=tuple(requests))


def endless(request: Request) -> Request:
    """Return the request without any stop, and so without a grammar, because texts of a grammar end with one."""
    return replace(without_stops(request), stop_at=-1, stops=(), grammar=None)


def without_stops(request: Request) -> Request:
    """Return the request with nothing but its stop ids, its budget and `max_len` to end it."""
    return replace(request, stop_sequences=(), stop_sequences_at=(), min_tokens=0, ignore_eos=False)


def unstopped(request: Request) -> Request:
    """Return the request with a grammar, an end of text, or nothing but its budget and `max_len` to end it."""
    stops = request.stops if request.grammar else ()
    return replace(request, stop_at=-1, stops=stops, stop_sequences=(), stop_sequences_at=())
