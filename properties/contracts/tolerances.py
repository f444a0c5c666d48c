"""Bounds for the floats of real models. Those of kernels are in the table of ops (properties/kernels/table.py)."""

from dataclasses import dataclass

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
