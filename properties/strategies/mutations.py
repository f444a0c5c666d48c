"""Small changes of a scenario that somebody kept: seeds, lengths, sizes and plans, one to three at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import integers, sampled
from draftproof.properties.values.paths import put_in
from draftproof.properties.values.scenario import Graphs, Request, Scenario

Draw = st.DrawFn


def mutated(draw: Draw, scenario: Scenario) -> Scenario:
    """Change a scenario in one to three ways; the result may need more memory than it has, and is not validated."""
    for _ in range(draw(integers(1, 3))):
        scenario = draw(sampled(_CHANGES))(draw, scenario)
    return scenario


def _request(draw: Draw, scenario: Scenario, change: Callable[[Request], dict[str, Any]]) -> Scenario:
    """Change one of the requests."""
    index = draw(integers(0, len(scenario.requests) - 1))
    requests = list(scenario.requests)
    requests[index] = replace(requests[index], **change(requests[index]))
    return replace(scenario, requests=tuple(requests))


def _seeds(draw: Draw, scenario: Scenario) -> Scenario:
    scenario = put_in(scenario, "schedule", row_seed=draw(integers(0, 3)))
    return put_in(scenario, "memory", page_seed=draw(integers(0, 3)), poison=draw(integers(0, 1)))


def _page(draw: Draw, scenario: Scenario) -> Scenario:
    return put_in(scenario, "memory", page_size=draw(integers(1, 6)))


def _chunk(draw: Draw, scenario: Scenario) -> Scenario:
    return put_in(scenario, "schedule", chunk=draw(sampled((2, 3, 4, 5, 16))))


def _sizes(draw: Draw, scenario: Scenario) -> Scenario:
    most = scenario.schedule.max_batch + 2
    return replace(scenario, graphs=Graphs(sizes=tuple(sorted(draw(st.sets(integers(1, most)))))))


def _prompt(draw: Draw, scenario: Scenario) -> Scenario:
    """Make a prompt one token longer or shorter."""
    if draw(st.booleans()):
        return _request(draw, scenario, lambda one: {"prompt": (*one.prompt, one.prompt[0])})
    return _request(draw, scenario, lambda one: {"prompt": one.prompt[:-1] or one.prompt})


def _budget(draw: Draw, scenario: Scenario) -> Scenario:
    change = draw(sampled((1, -1, 3)))
    return _request(draw, scenario, lambda one: {"budget": max(1, one.budget + change)})


def _arrival(draw: Draw, scenario: Scenario) -> Scenario:
    change = draw(sampled((1, -1, 2)))
    return _request(draw, scenario, lambda one: {"arrival": max(0, one.arrival + change)})


def _stop(draw: Draw, scenario: Scenario) -> Scenario:
    place = draw(integers(-1, 6))
    return _request(draw, scenario, lambda one: {"stop_at": place})


def _plans(_draw: Draw, scenario: Scenario) -> Scenario:
    """Let all requests begin one plan later."""
    requests = tuple(replace(one, rounds=(*one.rounds[1:], one.rounds[0])) for one in scenario.requests)
    return replace(scenario, requests=requests)


def _another(_draw: Draw, scenario: Scenario) -> Scenario:
    """Add the last request once more, a little later."""
    last = scenario.requests[-1]
    return replace(scenario, requests=(*scenario.requests[:3], replace(last, arrival=last.arrival + 1)))


def _fewer(_draw: Draw, scenario: Scenario) -> Scenario:
    return replace(scenario, requests=scenario.requests[:-1] or scenario.requests)


_CHANGES = (_seeds, _page, _chunk, _sizes, _prompt, _budget, _arrival, _stop, _plans, _another, _fewer)
