"""Bounds for the floats of real models, held against the float64 reference.

Those of kernels are in the table of ops (properties/kernels/table.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from draftproof.properties.values.observed import Choice
from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.properties.values.trace import Key

Near = Callable[[Key, np.ndarray, np.ndarray], bool]
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class Bound:
    """How far a vector of a real model may be from the float64 reference's, relative to its largest element (or 1).

    `units` of the dtype's machine epsilon at one token, times (1 + `growth` * ln(tokens behind it)).
    """

    units: float
    growth: float
    reason: str


# Measured with float32 engines: at most 20 units on tiny Llama and Qwen3 checkpoints (20 scenarios), at most 350 on
# tiny Qwen3-Next and Qwen3.5 ones, at most 300 on SmolLM2-135M, whose first positions have massive activations:
# transformers' own float32 run is as far from its float64 run there (3.0e-5 in the keys of layer 12 at position 1). A
# wrong row, position or slot is off by a hundred thousand. There are no bounds for bfloat16: states of tiny random
# models drift apart at that precision. Check runs real models in float32.
MODELS = {
    "verify.hidden": Bound(256, 0.5, "each layer rounds a few times its depth; softmax weights average over tokens"),
    "draft.step.hidden_in": Bound(512, 0.5, "as verify.hidden, through the head as often as steps were taken"),
    "extend.hidden_in": Bound(256, 0.5, "the target's hidden states, passed on"),
    "commit.kv": Bound(512, 0.5, "a projection of a normed state; norms of massive activations amplify rounding"),
    "extend.kv": Bound(512, 0.5, "as commit.kv, after the head's own projection"),
    **{
        f"commit.{name}": Bound(1024, 0.5, "as commit.kv; the delta rule adds up what every token before contributed")
        for name in ("state", "intermediate", "base", "checkpoint", "final")
    },
    "logits": Bound(256, 0.5, "one dot product over the hidden width after the last hidden state"),
}
# Logits of the checkpoints in use lie within this; the margin alone does not tell their size.
LOGIT_SCALE = 16.0


def exactly(_key: Key, expected: np.ndarray, got: np.ndarray) -> bool:
    """Compare float vectors bit for bit: the default where no bound applies."""
    return np.array_equal(expected, got)


def limit(bound: Bound, dtype: str, tokens: int, scale: float) -> float:
    """Return the largest difference allowed at a vector whose largest reference element is `scale`."""
    return bound.units * (1 + bound.growth * float(np.log(max(tokens, 1)))) * EPSILON[dtype] * scale


def near(scenario: Scenario, channel: str) -> Near:
    """Return the comparison of float vectors of a channel; NaN is never near."""
    bound = MODELS[channel] if channel in MODELS else MODELS["logits"]
    dtype = _dtype(scenario)

    def within(key: Key, expected: np.ndarray, got: np.ndarray) -> bool:
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        tokens = max(key.row, 0) + 1 if channel in ("commit.kv", "extend.kv") else scenario.memory.max_len
        return bool((np.abs(expected - got) <= limit(bound, dtype, tokens, scale)).all())

    return within


def logit_bound(scenario: Scenario) -> float:
    """Return how far a logit may be from the reference's."""
    return limit(MODELS["logits"], _dtype(scenario), scenario.memory.max_len, LOGIT_SCALE)


def is_tied(scenario: Scenario, expected: Choice, got: Choice | None) -> bool:
    """Return whether two choices differ where the reference's margin is too small to tell."""
    if got is None or expected[0] == got[0]:
        return False
    return expected[1] < 2 * logit_bound(scenario)


def _dtype(scenario: Scenario) -> str:
    return scenario.model.dtype if isinstance(scenario.model, Checkpoint) else "float64"
