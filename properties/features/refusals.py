"""Requests that no engine can serve: too long, with a token of no vocabulary, with a grammar that does not compile."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import Feature, any_request
from draftproof.properties.values.scenario import Request, Scenario

_FLAWS = ("length", "token", "grammar")
# Behind a request that was drawn, so that others run when it comes.
_BEHIND = (1, 2, 0, 3)


def with_refusals(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw requests that are refused, one of each flaw, beside those that are there: these stay as they are."""
    flawed = [_flawed(choose, choose.one_of(scenario.requests), flaw) for flaw in _FLAWS]
    return replace(scenario, requests=(*scenario.requests, *flawed))


def _flawed(choose: Choose, request: Request, flaw: str) -> Request:
    return replace(request, flaw=flaw, arrival=request.arrival + choose.one_of(_BEHIND), abort_at=None)


def _without(scenario: Scenario) -> Scenario:
    served = tuple(one for one in scenario.requests if one.flaw == "none")
    return scenario if served == scenario.requests else replace(scenario, requests=served)


_request = facts_of("request", channels="accept.returned", real=False)
FEATURE = Feature(
    name="refusals",
    weight=0.15,
    what="a request that no engine can serve is refused",
    has=any_request(lambda one: one.flaw != "none"),
    without=_without,
    finish=with_refusals,
    rule="S-LIMIT-18",
    of_probes=True,
    facts=(
        _request("refused_for_length", lambda one: one.request.flaw == "length", "refused: too long", effect=True),
        _request("refused_for_token", lambda one: one.request.flaw == "token", "refused: token id", effect=True),
        _request("refused_for_grammar", lambda one: one.request.flaw == "grammar", "refused: grammar", effect=True),
        _request("refused_beside_others", shown="refused: beside others"),
    ),
)
