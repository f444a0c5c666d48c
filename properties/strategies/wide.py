"""Rounds and batches beyond those of most scenarios: seven drafts a round, five requests that decode at a time."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.strategies.goals_batches import copies
from draftproof.properties.strategies.goals_models import fitted
from draftproof.properties.values.paths import put_in
from draftproof.properties.values.scenario import Adaptive, Request, RoundPlan, Scenario

STEPS = 7
# Requests that decode together, and those that end together with their first token.
_LONG, _SHORT = 5, 2
_BUDGET, _CAPTURED = 18, 6
# (drafts, right ones); requests begin at different places.
_PLANS = ((7, 7), (7, 5), (6, 6), (7, 6), (7, 4), (7, 0))


def widened(scenario: Scenario, turn: int) -> Scenario:
    """Return the scenario with rounds of seven drafts, five requests that decode and two that a prefill ends.

    In every other one a controller with the default candidates comes to seven drafts from three; in every fourth, three
    right drafts of three are just what is not enough for that.
    """
    requests = tuple(_wide(request, index) for index, request in enumerate(copies(scenario, _LONG + _SHORT)))
    adaptive = (None, _rising(0.75, 0.0), None, _rising(1.0, 0.5))[turn % 4]
    longest = max(len(request.prompt) for request in requests)
    sizes = tuple(sorted({*scenario.graphs.sizes, _CAPTURED})) if scenario.graphs.sizes else ()
    scenario = replace(scenario, steps=STEPS, adaptive=adaptive, requests=requests)
    scenario = put_in(scenario, "memory", request_slots=len(requests), max_len=longest + _BUDGET + STEPS)
    scenario = put_in(scenario, "graphs", sizes=sizes)
    return fitted(put_in(scenario, "schedule", max_batch=len(requests), draft_batch=0))


def _rising(alpha: float, up: float) -> Adaptive:
    return Adaptive(initial=3, alpha=alpha, interval=1, warmup=0, down=0.0, up=up)


def _wide(request: Request, index: int) -> Request:
    rounds = tuple(
        RoundPlan(num_drafts=drafts, num_correct=accept) for drafts, accept in _PLANS[index:] + _PLANS[:index]
    )
    budget = _BUDGET if index < _LONG else 1
    return replace(request, arrival=min(index // 3, 1), budget=budget, stop_at=-1, rounds=rounds)
