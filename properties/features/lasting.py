"""Requests that last for some rounds, and the memory that they then need."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from draftproof.properties.features.some_requests import slots_for
from draftproof.properties.lib.paths import put_in
from draftproof.properties.values.scenario import Request, RoundPlan, Scenario, pages_needed
from draftproof.properties.values.tree import TreeShape, chain

_MOST = 3
"""Of many requests the others are there for their number."""
_GOING_ON, _ROUNDS = 2, 3
"""Two rows of a batch last, so that they can be taken for each other, until what is a round old shows once more."""
_ENDS = {"abort_at": None, "grammar": None, "stop_sequences": (), "stop_sequences_at": (), "min_tokens": 0}
"""What ends a request early, or asks for stops that do, with the values that mean nothing does."""


def with_some_going_on(scenario: Scenario) -> Scenario:
    """Return the scenario with two requests that last for some rounds, whatever ends the others.

    Each feature that ends requests leaves others; of several of them together none may be left. What ends a request is
    lifted if another one still has it; otherwise there is one more like it, but for its tokens. A single request stays
    as it is.
    """
    requests, least = list(scenario.requests), _ROUNDS * scenario.width
    if len(requests) == 1:
        return scenario
    going = [place for place, one in enumerate(requests) if _lifted(scenario, one, least) == one][:_GOING_ON]
    for place in range(len(requests)):
        others = [one for other, one in enumerate(requests) if other != place and other not in going]
        if len(going) < _GOING_ON and place not in going and _is_had(scenario, requests[place], others):
            requests[place] = _lifted(scenario, requests[place], least)
            going.append(place)
    while len(going) < _GOING_ON:
        going.append(len(requests))
        requests.append(_another(scenario, _lifted(scenario, requests[len(going) - 1], least), len(going)))
    made = _long(replace(scenario, requests=tuple(requests)), least, going)
    memory = replace(made.memory, request_slots=slots_for(made, requests))
    needs = (sum(sorted(pages_needed(one, each) for each in one.requests)[-_GOING_ON:]) for one in (made, scenario))
    after, before = needs
    return replace(made, memory=replace(memory, pages=memory.pages + max(0, after - before)))


def _lifted(scenario: Scenario, request: Request, least: int) -> Request:
    """Return the request with nothing that ends it before it has emitted `least` tokens, but for a few stop ids."""
    stops = () if request.grammar or request.min_tokens else request.stops
    stop_at = request.stop_at if request.stop_at >= least else -1
    return replace(request, **_ENDS, stops=stops, stop_at=stop_at, ignore_eos=bool(scenario.eos) or request.ignore_eos)


def _is_had(scenario: Scenario, request: Request, others: Collection[Request]) -> bool:
    """Return whether others have what ends a request, each thing at least one of them."""
    own = [field for field, off in _ENDS.items() if getattr(request, field) != off]
    heeds = bool(scenario.eos) and not request.ignore_eos
    return all(any(getattr(one, field) != _ENDS[field] for one in others) for field in own) and (
        not heeds or any(not one.ignore_eos for one in others)
    )


def _another(scenario: Scenario, request: Request, shift: int) -> Request:
    """Return a request with other tokens, whose rounds begin with another plan: two alike would hide each other."""
    prompt = tuple((token + shift) % scenario.model.vocab for token in request.prompt)
    return replace(request, prompt=prompt, rounds=(*request.rounds[1:], request.rounds[0]))


def lasting(scenario: Scenario, rounds: int) -> Scenario:
    """Return the scenario with budgets that last for `rounds` rounds in which all drafts are accepted.

    This holds for the first requests. `max_len` grows with the budgets if it cut no request before; otherwise it cuts
    none before these rounds. There are as many more pages as the requests can now come to need.
    """
    return with_pages_of(_long(scenario, rounds * scenario.width, range(_MOST)), scenario)


def _long(scenario: Scenario, least: int, places: Collection[int]) -> Scenario:
    """Return the scenario with budgets of `least` tokens at least for some requests, and a `max_len` for them."""
    requests = tuple(
        replace(one, budget=max(one.budget, least)) if place in places else one
        for place, one in enumerate(scenario.requests)
    )
    before, after = (max(len(one.prompt) + one.budget for one in some) for some in (scenario.requests, requests))
    memory = scenario.memory
    cut = max(memory.max_len, max(len(one.prompt) for one in requests) + least)
    max_len = memory.max_len + after - before if memory.max_len >= before else cut
    return put_in(replace(scenario, requests=requests), "memory", max_len=max_len)


def with_pages_of(made: Scenario, scenario: Scenario) -> Scenario:
    """Return what was made of a scenario with as many pages more as its requests came to need more."""
    return put_in(made, "memory", pages=scenario.memory.pages + _pages(made) - _pages(scenario))


def rejecting(scenario: Scenario) -> Scenario:
    """Return the scenario with a round of each request that accepts some drafts and not all."""

    def some(plan: RoundPlan) -> RoundPlan:
        return forced(scenario, plan, scenario.steps // 2)

    requests = tuple(
        one
        if any(0 <= plan.num_correct < plan.num_drafts for plan in one.rounds)
        else replace(one, rounds=(some(one.rounds[-1]), *one.rounds))
        for one in scenario.requests
    )
    return replace(scenario, requests=requests)


def forced(scenario: Scenario, plan: RoundPlan, right: int) -> RoundPlan:
    """Return a round that forces as many drafts as there may be, so many of them right; those of a tree are a chain."""
    shape = TreeShape(parents=chain(scenario.steps), path=tuple(range(1, right + 1))) if scenario.tree else None
    return replace(plan, num_drafts=scenario.steps, num_correct=right, shape=shape)


def _pages(scenario: Scenario) -> int:
    return sum(pages_needed(scenario, request) for request in scenario.requests)
