"""What shrinking tries with the requests of a scenario: fewer, shorter, and wanting less."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from draftproof.fuzz.shrinking.size import rounds, tokens_of
from draftproof.properties.values.paths import get, lower, put, without
from draftproof.properties.values.scenario import Request, RoundPlan, Scenario


def fewer_requests(scenario: Scenario) -> Iterator[Scenario]:
    """Fewer requests, the first of which arrives at once."""
    for places in without(len(scenario.requests)):
        kept = [scenario.requests[place] for place in places]
        first = min(request.arrival for request in kept)
        moved = [msgspec.structs.replace(request, arrival=request.arrival - first) for request in kept]
        yield msgspec.structs.replace(scenario, requests=tuple(moved))


def all_requests(scenario: Scenario, change: Callable[[Request], Request]) -> Scenario:
    """Return the scenario with every request changed."""
    return msgspec.structs.replace(scenario, requests=tuple(change(request) for request in scenario.requests))


def one_request(scenario: Scenario, place: int, request: Request) -> Scenario:
    requests = scenario.requests
    return msgspec.structs.replace(scenario, requests=(*requests[:place], request, *requests[place + 1 :]))


def each_request(change: Callable[[Request], Iterable[Request]]) -> Callable[[Scenario], Iterator[Scenario]]:
    """Return the pass that changes one request after the other."""

    def each(scenario: Scenario) -> Iterator[Scenario]:
        for place, request in enumerate(scenario.requests):
            for changed in change(request):
                yield one_request(scenario, place, changed)

    return each


def fewer_rounds(scenario: Scenario) -> Iterator[Scenario]:
    """Fewer rounds: of all requests, of each, and each with a budget that is one less."""
    max_len = scenario.memory.max_len
    most = max(rounds(request, max_len) for request in scenario.requests)
    for count in lower(most, 0):
        yield all_requests(scenario, lambda request, count=count: _at_most(request, count, max_len))  # type: ignore[misc]
    for place, request in enumerate(scenario.requests):
        for count in lower(rounds(request, max_len), 0):
            yield one_request(scenario, place, _at_most(request, count, max_len))
        for budget in lower(request.budget, 1):
            yield one_request(scenario, place, msgspec.structs.replace(request, budget=budget))


def _at_most(request: Request, count: int, max_len: int) -> Request:
    """Return the request with so many rounds, if it has more."""
    if rounds(request, max_len) <= count:
        return request
    return msgspec.structs.replace(request, budget=tokens_of(request, count))


def fewer_plans(request: Request) -> Iterator[Request]:
    """Fewer plans, and the later ones sooner."""
    for places in without(len(request.rounds)):
        yield msgspec.structs.replace(request, rounds=tuple(request.rounds[place] for place in places))


def simpler_plans(request: Request) -> Iterator[Request]:
    """Fewer drafts, forced ones, none right; with as many rounds as before, or with the same budget."""
    for place, plan in enumerate(request.rounds):
        for simpler in _simpler(plan):
            changed = msgspec.structs.replace(
                request, rounds=(*request.rounds[:place], simpler, *request.rounds[place + 1 :])
            )
            count = rounds(request, 1 << 20)
            yield msgspec.structs.replace(changed, budget=max(1, min(request.budget, tokens_of(changed, count))))
            yield changed


def _simpler(plan: RoundPlan) -> Iterator[RoundPlan]:
    for drafts in lower(plan.drafts, 0):
        yield RoundPlan(drafts=drafts, accept=min(plan.accept, drafts))
    if plan.accept:
        yield RoundPlan(drafts=plan.drafts, accept=0)
    for accept in lower(plan.accept, 1):
        yield RoundPlan(drafts=plan.drafts, accept=accept)
    if plan.accept < 0:
        yield RoundPlan(drafts=plan.drafts, accept=plan.drafts)


def shorter_prompts(scenario: Scenario) -> Iterator[Scenario]:
    """Shorter prompts: of all requests, of each, its beginning and its end, and without one token."""
    longest = max(len(request.prompt) for request in scenario.requests)
    for length in lower(longest, 1):
        yield all_requests(
            scenario,
            lambda request, length=length: msgspec.structs.replace(request, prompt=request.prompt[:length]),  # type: ignore[misc]
        )
    for place, request in enumerate(scenario.requests):
        for length in lower(len(request.prompt), 1):
            for prompt in (request.prompt[:length], request.prompt[-length:]):
                yield one_request(scenario, place, msgspec.structs.replace(request, prompt=prompt))


def sooner(request: Request) -> Iterator[Request]:
    """Earlier arrivals."""
    for arrival in lower(request.arrival, 0):
        yield msgspec.structs.replace(request, arrival=arrival)


def no_stops(request: Request) -> Iterator[Request]:
    """No stop token; a budget that ends the request where it did, or the one it has."""
    if request.stop_at >= 0:
        yield msgspec.structs.replace(request, stop_at=-1, budget=min(request.budget, request.stop_at + 1))
        yield msgspec.structs.replace(request, stop_at=-1)


def plainer_tokens(scenario: Scenario) -> Iterator[Scenario]:
    """Token 0 throughout, counted up, or in one place; a smaller vocabulary."""
    yield all_requests(scenario, lambda request: msgspec.structs.replace(request, prompt=(0,) * len(request.prompt)))
    yield all_requests(
        scenario, lambda request: msgspec.structs.replace(request, prompt=tuple(range(len(request.prompt))))
    )
    for place, request in enumerate(scenario.requests):
        for at, token in enumerate(request.prompt):
            for smaller in lower(token, 0):
                prompt = (*request.prompt[:at], smaller, *request.prompt[at + 1 :])
                yield one_request(scenario, place, msgspec.structs.replace(request, prompt=prompt))
    for vocab in lower(scenario.model.vocab, 4) if get(scenario, "model.lanes") else ():
        yield all_requests(
            put(scenario, "model.vocab", vocab),
            lambda request, vocab=vocab: msgspec.structs.replace(  # type: ignore[misc]
                request, prompt=tuple(token % vocab for token in request.prompt)
            ),
        )
