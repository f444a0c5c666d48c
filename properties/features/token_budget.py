"""A budget of tokens for an engine step: less than all that are ready would take."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import ROUNDS_OF_ITS_SCHEDULE, Feature, field_is_not, field_put
from draftproof.properties.values.scenario import Request, Scenario

_MOST_STEPS = 100
"""A budget of one or two tokens is spent in so many steps at most: there are none beside long prompts."""


def with_token_budget(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw a budget about as large as a chunk, a round, both of them or two rounds, or one or two tokens.

    Or one of the rows of a batch gets none, so that who is live waits: beside a draft batch often one behind it.
    Requests come in early steps.
    """
    chunk, width, whole = _chunk(scenario), scenario.width, whole_step(scenario)
    rounds, rows = whole - chunk, _rows(scenario)
    about = [width + 1, 2 * width - 1, width, chunk + width, width - 1, chunk, rounds - 1, rounds, rows - 1, rows, 2, 1]
    if scenario.schedule.draft_batch and choose.one_of((True, False)):
        # Requests with drafts take all of it, and one that decodes without any gets none.
        about = [scenario.schedule.draft_batch * width]
    tokens = sum(len(one.prompt) + one.budget for one in scenario.requests)
    least = min(width, -(-tokens // _MOST_STEPS))
    budget = choose.one_of([one for one in about if least <= one < max(2, whole)] or [least])
    requests = tuple(map(_early, scenario.requests))
    return replace(scenario, requests=requests, schedule=replace(scenario.schedule, token_budget=budget))


def whole_step(scenario: Scenario) -> int:
    """Return how many tokens a step takes that a budget cuts nothing of: a chunk, and rounds of a whole batch."""
    return _rows(scenario) * scenario.width + _chunk(scenario)


def _rows(scenario: Scenario) -> int:
    return min(scenario.schedule.max_batch, len(scenario.requests))


def _chunk(scenario: Scenario) -> int:
    return min(scenario.schedule.chunk, max(len(request.prompt) for request in scenario.requests))


def _early(request: Request) -> Request:
    return replace(request, arrival=min(request.arrival, 2))


_run = facts_of("run", channels="round.rows", effect=True)
_FACTS = (
    _run("drafts_cut_by_token_budget", shown="token budget: cut drafts"),
    _run("chunks_cut_by_token_budget", shown="token budget: cut a chunk"),
    _run("waits_for_token_budget", shown="token budget: made a request wait"),
)

FEATURE = Feature(
    name="token-budget",
    not_compared={
        **dict.fromkeys(("alone", "unoverlapped"), ROUNDS_OF_ITS_SCHEDULE),
        "chain_as_tree": "a tree is not cut to the tokens that are left",
    },
    weight=0.3,
    what="an engine step runs a limited number of tokens",
    has=field_is_not("schedule.token_budget", 0),
    without=field_put("schedule.token_budget", 0),
    draw=with_token_budget,
    rule="S-SCHED-10",
    of_probes=True,
    facts=_FACTS,
)
