"""Requests whose text changes their logits: penalties and biases that move choices, up and down."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.coverage.fact import facts_of
from draftproof.properties.features.feature import Feature, requests_put
from draftproof.properties.features.some_requests import with_some
from draftproof.properties.values.penalties import Penalties, TokenBias
from draftproof.properties.values.scenario import Scenario

# A probe's favourite is 2^23 above logits below 2^23. What is drawn moves a token beyond the others or not, and one
# unit decides a tie; less than nothing makes a token that was emitted likelier, so that texts repeat it.
_FREQUENCIES = (-(1 << 23), 3 << 21, -(3 << 21), 0, -(1 << 23), 1 << 23, 1, -1)
_PRESENCES = (0, 3 << 21, -(1 << 23), 1 << 23, 0, -1, 1)
_REPETITIONS = (1.0, 2.0, 0.5, 1.25, 1.0, 1.0625)
_BIASES = (1 << 23, -(1 << 23), 3 << 21, 1 << 21, -1, -(1 << 24))
_BELOW = 97


def with_penalties(choose: Choose, scenario: Scenario) -> Scenario:
    """Draw which requests have penalties, and which; the first has."""
    return with_some(
        choose, scenario, lambda request: replace(request, penalties=_penalties(choose, scenario.model.vocab))
    )


def _penalties(choose: Choose, vocab: int) -> Penalties:
    count = choose.one_of((0, 1, 2, 0, 3))
    tokens = dict.fromkeys(choose.integer(0, _BELOW - 1) * vocab // _BELOW for _ in range(count))
    return Penalties(
        bias=tuple(TokenBias(token=token, amount=choose.one_of(_BIASES)) for token in tokens),
        repetition=choose.one_of(_REPETITIONS),
        frequency=choose.one_of(_FREQUENCIES),
        presence=choose.one_of(_PRESENCES),
    )


_round = facts_of("round", real=False)
_FACTS = (
    facts_of("round")("penalty_changed_choice", shown="penalties: another choice", effect=True),
    _round("penalty_by_draft_in_window", shown="penalties: by a draft of the round"),
    _round("bias_changed_choice", shown="penalties: by a bias"),
    _round("repetition_changed_choice", shown="penalties: by repetition"),
    _round("frequency_changed_choice", shown="penalties: by frequency"),
    _round("presence_changed_choice", shown="penalties: by presence"),
)

FEATURE = Feature(
    name="penalties",
    what="logits change by bias, repetition, frequency or presence",
    has=lambda one: one.is_penalized,
    without=requests_put(penalties=None),
    draw=with_penalties,
    rule="S-PENALTY-1",
    facts=_FACTS,
)
