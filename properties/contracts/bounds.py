"""Comparison of a real model's floats with the float64 reference, by the table of tolerances."""

from __future__ import annotations

import numpy as np

from draftproof.properties.contracts.tolerances import EPSILON, LOGIT_SCALE, MODELS, Bound
from draftproof.properties.diagnosis.compare import Near
from draftproof.properties.values.observed import Choice
from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.properties.values.trace import Key


def limit(bound: Bound, dtype: str, tokens: int, scale: float) -> float:
    """The largest difference allowed at a vector whose largest reference element is `scale`."""
    return bound.units * (1 + bound.growth * float(np.log(max(tokens, 1)))) * EPSILON[dtype] * scale


def near(scenario: Scenario, channel: str) -> Near:
    """Comparison of float vectors of a channel; NaN is never near."""
    bound = MODELS[channel] if channel in MODELS else MODELS["logits"]
    dtype = _dtype(scenario)

    def within(key: Key, expected: np.ndarray, got: np.ndarray) -> bool:
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        tokens = max(key.row, 0) + 1 if channel in ("commit.kv", "extend.kv") else scenario.memory.max_len
        return bool((np.abs(expected - got) <= limit(bound, dtype, tokens, scale)).all())

    return within


def logit_bound(scenario: Scenario) -> float:
    """How far a logit may be from the reference's."""
    return limit(MODELS["logits"], _dtype(scenario), scenario.memory.max_len, LOGIT_SCALE)


def tied(scenario: Scenario, expected: Choice, got: Choice | None) -> bool:
    """Whether two choices differ where the reference's margin is too small to tell."""
    if got is None or expected[0] == got[0]:
        return False
    return expected[1] < 2 * logit_bound(scenario)


def _dtype(scenario: Scenario) -> str:
    return scenario.model.dtype if isinstance(scenario.model, Checkpoint) else "float64"
