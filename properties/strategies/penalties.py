"""Requests whose text changes their logits: penalties and biases that move choices, up and down."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import integers, sampled
from draftproof.properties.strategies.some_requests import with_some
from draftproof.properties.values.penalties import Penalties, TokenBias
from draftproof.properties.values.scenario import Scenario

# A probe's favourite is 2^23 above logits below 2^23. What is drawn moves a token beyond the others or not, and one
# unit decides a tie; less than nothing makes a token that was emitted likelier, so that texts repeat it.
_FREQUENCIES = (-(1 << 23), 3 << 21, -(3 << 21), 0, -(1 << 23), 1 << 23, 1, -1)
_PRESENCES = (0, 3 << 21, -(1 << 23), 1 << 23, 0, -1, 1)
_REPETITIONS = (1.0, 2.0, 0.5, 1.25, 1.0, 1.0625)
_BIASES = (1 << 23, -(1 << 23), 3 << 21, 1 << 21, -1, -(1 << 24))
_BELOW = 97


def with_penalties(draw: st.DrawFn, scenario: Scenario) -> Scenario:
    """Draw which requests have penalties, and which; the first has."""
    return with_some(draw, scenario, lambda request: replace(request, penalties=_penalties(draw, scenario.model.vocab)))


def without_penalties(scenario: Scenario) -> Scenario:
    """Return the scenario with requests that choose from the target's own logits."""
    if not scenario.is_penalized:
        return scenario
    return replace(scenario, requests=tuple(replace(request, penalties=None) for request in scenario.requests))


def _penalties(draw: st.DrawFn, vocab: int) -> Penalties:
    count = draw(sampled((0, 1, 2, 0, 3)))
    tokens = dict.fromkeys(draw(integers(0, _BELOW - 1)) * vocab // _BELOW for _ in range(count))
    return Penalties(
        bias=tuple(TokenBias(token=token, amount=draw(sampled(_BIASES))) for token in tokens),
        repetition=draw(sampled(_REPETITIONS)),
        frequency=draw(sampled(_FREQUENCIES)),
        presence=draw(sampled(_PRESENCES)),
    )
