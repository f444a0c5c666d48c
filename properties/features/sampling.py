"""Requests that draw their tokens: temperatures, filters and seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import Feature, requests_put
from draftproof.properties.features.some_requests import with_some
from draftproof.properties.values.drafts import kind_of
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Request, Scenario

# The best token has a weight of a third to nearly all; beyond that few drafts are accepted.
_TEMPERATURES = (2.0, 4.0, 1.0, 3.0, 0.5, 8.0)
_NONE = (None,) * 3
_WORDS = 5


def with_sampling(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw which requests are sampled, and how; the first is, and in a dynamic scenario the last alone."""

    def drawn() -> Sampling:
        return _sampling(choose, scenario.model.vocab)

    if scenario.dynamic:
        *others, last = scenario.requests
        return replace(scenario, requests=(*others, replace(unplanned(last), sampling=drawn())))
    return with_some(choose, scenario, lambda request: replace(request, sampling=drawn()))


def with_drawn_drafts(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw which sampled requests have drafts that are drawn; the first of them has."""
    places = [place for place, one in enumerate(scenario.requests) if one.sampling]
    if not places or not kind_of(scenario.draft).draws or scenario.tree:
        return scenario
    chosen = {places[0], *(place for place in places if choose.boolean())}
    requests = (_own(one) if place in chosen else one for place, one in enumerate(scenario.requests))
    return replace(scenario, requests=tuple(requests))


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


def _own(request: Request) -> Request:
    """Return the request with drawn drafts, and a second round that verifies what is proposed: others are forced."""
    assert request.sampling is not None
    request = replace(request, sampling=replace(request.sampling, draft="sampled"))
    if any(plan.num_correct < 0 for plan in request.rounds[:2]):
        return request
    first = request.rounds[0]
    return replace(request, rounds=(first, replace(first, num_correct=-1), *request.rounds[1:]))


def _sampling(choose: Choose, vocab: int) -> Sampling:
    """Draw a seed with both words, and filters for a part of requests; some let all tokens of the vocabulary pass."""
    seed = 0
    for _ in range(_WORDS):
        seed = seed << 12 | choose.integer(0, 96) * 41
    return Sampling(
        temperature=choose.one_of(_TEMPERATURES),
        top_k=choose.one_of((*_NONE, 3, 1, 2) * 2 + (vocab,)),
        top_p=choose.one_of((1.0, 1.0, 0.75, 0.5)),
        min_p=choose.one_of((0.0, 0.0, 0.25, 0.0625)),
        seed=seed,
    )


def _asks(holds: Callable[[Sampling], bool]) -> Callable[[Any], bool]:
    """Return a reader of requests: something holds of how tokens are drawn."""
    return lambda one: one.request.sampling is not None and holds(one.request.sampling)


def _stops(one: Any) -> bool:
    return one.is_sampled and one.stage in ("only", "last") and one.request.stopped_by is not None


def _is_under_control(one: Any) -> bool:
    """Return whether a round with drafts of a sampled request has as many as a controller or its batch allows."""
    scenario = one.request.run.scenario
    return one.is_sampled and one.drafts > 0 and bool(scenario.adaptive_steps or scenario.schedule.draft_batch)


_request, _round = facts_of("request", real=False), facts_of("round", real=False)
_SAMPLED = (
    facts_of("round")(
        "sampled_accepted", lambda one: one.is_sampled * one.correct_len, "temperature: accepted", effect=True
    ),
    facts_of("round")(
        "sampled_residuals",
        lambda one: one.is_sampled and one.correct_len < one.drafts,
        "temperature: from the rest",
        effect=True,
    ),
    _round(
        "sampled_after_all",
        lambda one: one.is_sampled and one.accept == "all",
        "temperature: after all drafts",
        effect=True,
    ),
    _round(
        "sampled_dynamic_rounds",
        _is_under_control,
        "temperature: under a controller",
        takes="adaptive-steps|draft-batch",
    ),
    _round("sampled_stops", _stops, "temperature: stopped"),
    facts_of("round")("greedy_beside_sampled", lambda one: not one.is_sampled and one.request.run.scenario.is_sampled),
    facts_of("batch", real=False)(
        "half_sampled_batches", lambda one: one.is_half_sampled, "temperature: beside 0", takes="several rows"
    ),
    _round(
        "sampled_top_k_1",
        lambda one: one.is_sampled and one.request.request.sampling.top_k == 1,
        "temperature: top-k 1",
    ),
    _request("temperatures_below_1", _asks(lambda one: one.temperature < 1), "temperature: below 1"),
    _request("temperatures_of_1", _asks(lambda one: one.temperature == 1), "temperature: 1"),
    _request("temperatures_above_1", _asks(lambda one: one.temperature > 1), "temperature: above 1"),
    _request("filtered_by_top_k", _asks(lambda one: (one.top_k or 0) > 1), "filter: top-k"),
    _request("filtered_by_top_p", _asks(lambda one: one.top_p < 1), "filter: top-p"),
    _request("filtered_by_min_p", _asks(lambda one: one.min_p > 0), "filter: min-p"),
)

SAMPLING = Feature(
    name="sampling",
    what="a request draws its tokens",
    has=lambda one: one.is_sampled,
    without=requests_put(sampling=None),
    draw=with_sampling,
    rule="S-SAMPLE-1",
    facts=_SAMPLED,
)
_DRAWN = (
    _round("drafts_drawn", lambda one: one.is_drawn * one.drafts, "drafts drawn: at all", effect=True),
    _round("drawn_accepted", lambda one: one.is_drawn * one.correct_len, "drafts drawn: accepted"),
    _round("drawn_residuals", lambda one: one.is_drawn and one.correct_len < one.drafts, "drafts drawn: the rest"),
    _round("drawn_after_all", lambda one: one.is_drawn and one.accept == "all", "drafts drawn: after all drafts"),
)

DRAWN_DRAFTS = Feature(
    name="drawn-drafts",
    not_compared={"chain_as_tree": "drafts of trees are not drawn (S-TREE-2)"},
    what="drafts of a sampled request are drawn, too",
    has=lambda one: one.drafts_sampled,
    without=with_greedy_drafts,
    draw=with_drawn_drafts,
    rule="S-SAMPLE-9",
    needs=("sampling",),
    refuses={"trees": "S-TREE-2 proposes the best tokens of a row, and S-TREE-11 asks them so; S-SAMPLE-9 draws one"},
    drafts=lambda kind: kind.draws,
    because="it has no distribution to draw from",
    of_probes=True,
    facts=_DRAWN,
)
