"""How far a real model's floats may be from the float64 reference: one table, each row with its reason.

A bound is in units of the dtype's machine epsilon, relative to the largest element of the reference's vector, and
grows with the number of tokens behind it (position + 1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from draftproof.properties.compare import Near
from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.properties.values.trace import Datum, Key

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7}


class Bound(NamedTuple):
    """`units` of epsilon at one token, times (1 + `growth` * ln(tokens)); `reason` says why so many."""

    units: float
    growth: float
    reason: str


BOUNDS = {
    "verify.hidden": Bound(256, 0.5, "each layer rounds a few times its depth; softmax weights average over tokens"),
    "draft.step.hidden_in": Bound(512, 0.5, "as verify.hidden, through the head as often as steps were taken"),
    "extend.hidden_in": Bound(256, 0.5, "the target's hidden states, passed on"),
    "commit.kv": Bound(256, 0.5, "a projection of the hidden state, rotated by float32 angles"),
    "extend.kv": Bound(512, 0.5, "as commit.kv, after the head's own projection"),
    "logits": Bound(512, 0.5, "one dot product over the hidden width after the last hidden state"),
}
# Logits of the checkpoints in use lie within this; the margin alone does not tell their size.
LOGIT_SCALE = 16.0


def limit(bound: Bound, dtype: str, tokens: int, scale: float) -> float:
    """The largest difference allowed at a vector whose largest reference element is `scale`."""
    return bound.units * (1 + bound.growth * float(np.log(max(tokens, 1)))) * EPSILON[dtype] * scale


def near(scenario: Scenario, channel: str) -> Near:
    """Comparison of float vectors of a channel; NaN is never near."""
    bound = BOUNDS[channel] if channel in BOUNDS else BOUNDS["logits"]
    dtype = _dtype(scenario)

    def within(key: Key, expected: np.ndarray, got: np.ndarray) -> bool:
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        tokens = max(key.row, 0) + 1 if channel in ("commit.kv", "extend.kv") else scenario.memory.max_len
        return bool((np.abs(expected - got) <= limit(bound, dtype, tokens, scale)).all())

    return within


def logit_bound(scenario: Scenario) -> float:
    """How far a logit may be from the reference's."""
    return limit(BOUNDS["logits"], _dtype(scenario), scenario.memory.max_len, LOGIT_SCALE)


def tied(scenario: Scenario, expected: Datum, got: Datum | None) -> bool:
    """Whether two choices differ where the reference's margin is too small to tell."""
    if not isinstance(expected, tuple) or not isinstance(got, tuple) or expected[0] == got[0]:
        return False
    return float(expected[1]) < 2 * logit_bound(scenario)


def _dtype(scenario: Scenario) -> str:
    return scenario.model.dtype if isinstance(scenario.model, Checkpoint) else "float64"
