"""Requests that draw their tokens: temperatures, filters and seeds."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import integers, sampled
from draftproof.properties.strategies.some_requests import with_some
from draftproof.properties.values.drafts import kind_of
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Request, Scenario

# The best token has a weight of a third to nearly all; beyond that few drafts are accepted.
_TEMPERATURES = (2.0, 4.0, 1.0, 3.0, 0.5, 8.0)
_NONE = (None,) * 3
_WORDS = 5


def with_sampling(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw which requests are sampled, and how; the first is, and in a dynamic scenario the last alone."""
    draws = kind_of(scenario.draft).draws and scenario.tree is None
    if scenario.dynamic:
        *others, last = scenario.requests
        return replace(scenario, requests=(*others, replace(unplanned(last), sampling=_sampling(draw, draws))))
    return with_some(draw, scenario, lambda request: _own(replace(request, sampling=_sampling(draw, draws))))


def unplanned(request: Request) -> Request:
    """Return the request with rounds in which nothing is forced, and that does not end at a token of its text."""
    rounds = tuple(replace(plan, num_correct=-1, shape=None) for plan in request.rounds)
    return replace(request, rounds=rounds, stop_at=-1)


def with_greedy_drafts(scenario: Scenario) -> Scenario:
    """Return the scenario with drafts that are argmaxes, for a draft that has no distribution to draw from."""
    if not any(request.sampling and request.sampling.draft == "sampled" for request in scenario.requests):
        return scenario
    return replace(scenario, requests=tuple(map(_with_greedy_drafts, scenario.requests)))


def _with_greedy_drafts(request: Request) -> Request:
    return replace(request, sampling=replace(request.sampling, draft="greedy")) if request.sampling else request


def greedy(scenario: Scenario) -> Scenario:
    """Return the scenario with requests that take the best token."""
    if not scenario.is_sampled:
        return scenario
    return replace(scenario, requests=tuple(replace(request, sampling=None) for request in scenario.requests))


def _own(request: Request) -> Request:
    """Return the request, of drawn drafts with a second round that verifies what is proposed: others are forced."""
    drawn = request.sampling is not None and request.sampling.draft == "sampled"
    if not drawn or any(plan.num_correct < 0 for plan in request.rounds[:2]):
        return request
    first = request.rounds[0]
    return replace(request, rounds=(first, replace(first, num_correct=-1), *request.rounds[1:]))


def _sampling(draw: st.DrawFn, draws: bool) -> Sampling:
    """Draw a seed with both words, and filters for a part of requests; integers are below 100 as everywhere."""
    seed = 0
    for _ in range(_WORDS):
        seed = seed << 12 | draw(integers(0, 96)) * 41
    return Sampling(
        temperature=draw(sampled(_TEMPERATURES)),
        top_k=draw(sampled((*_NONE, 3, 1, 2))),
        top_p=draw(sampled((1.0, 1.0, 0.75, 0.5))),
        min_p=draw(sampled((0.0, 0.0, 0.25, 0.0625))),
        seed=seed,
        draft=draw(sampled(("greedy", "sampled"))) if draws else "greedy",
    )
