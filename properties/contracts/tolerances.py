"""The one table of bounds for float arithmetic. Integers, and data that is only moved, are always exact.

A bound is the largest |got - expected| / (1 + |expected|), where expected is computed in float64.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Tolerance:
    """One bound and why it is what it is."""

    name: str
    dtype: torch.dtype
    bound: float
    reason: str


_SUM = "sums of up to a few hundred terms of size 4 in {wide}, each step rounded to {ulp}"
_ROUNDED = "computed in float32, rounded once or twice to the 8 bits of bfloat16: one unit is 2^-8 of the value"
_DELTA = "up to 9 tokens of sums of up to 6 terms of size 4, keys of length 1, decay below 1,"
_FOLDED = (
    "after a convolution that is rounded to the dtype of the inputs: where float32 and float64 fall on two sides of a"
    " rounding, a key or value moves by a unit of it, so the state, float32 itself, is as coarse"
)

TABLE = (
    Tolerance("paged_attention", torch.float64, 1e-12, _SUM.format(wide="float64", ulp="2^-53")),
    Tolerance("paged_attention", torch.float32, 2e-5, _SUM.format(wide="float32", ulp="2^-24")),
    Tolerance("paged_attention", torch.bfloat16, 2e-2, "weights and output are rounded to 8 bits; values reach 4"),
    Tolerance("rms_norm", torch.float64, 1e-13, "one mean and one root in float64"),
    Tolerance("rms_norm", torch.float32, 2e-6, "one mean in float32 and an approximate reciprocal root (2 units)"),
    Tolerance("rms_norm", torch.bfloat16, 2e-2, f"{_ROUNDED}; the first rounding is scaled by the weight"),
    Tolerance("add_rms_norm", torch.float64, 1e-13, "as rms_norm, after one exact or once rounded addition"),
    Tolerance("add_rms_norm", torch.float32, 2e-6, "as rms_norm, after one exact or once rounded addition"),
    Tolerance("add_rms_norm", torch.bfloat16, 2e-2, "as rms_norm; the addition in float32 is rounded twice"),
    Tolerance("silu_mul", torch.float64, 1e-13, "one exponential and one quotient in float64"),
    Tolerance("silu_mul", torch.float32, 4e-6, "one fast exponential (2 units) and one quotient, times up to 4"),
    Tolerance("silu_mul", torch.bfloat16, 8e-3, _ROUNDED),
    Tolerance("rope", torch.float64, 1e-11, "the angle, up to 5000, is rounded before sine and cosine"),
    Tolerance("rope", torch.float32, 4e-6, "sine and cosine of a float32 angle to 2 units, times up to 4"),
    Tolerance("rope", torch.bfloat16, 8e-3, _ROUNDED),
    Tolerance("narrow_linear", torch.float64, 1e-12, "one sum of up to 40 terms near 1/2, in float64"),
    Tolerance("narrow_linear", torch.float32, 2e-05, "one sum of up to 40 terms near 1/2, in float32"),
    Tolerance(
        "narrow_linear",
        torch.bfloat16,
        0.03,
        "one sum of up to 40 terms near 1/2, in float32, each rounding to 8 bits",
    ),
    Tolerance("norm_linear", torch.float64, 1e-12, "as narrow_linear, of an input from rms_norm, in float64"),
    Tolerance("norm_linear", torch.float32, 2e-05, "as narrow_linear, of an input from rms_norm, in float32"),
    Tolerance(
        "norm_linear",
        torch.bfloat16,
        0.03,
        "as narrow_linear, of an input from rms_norm, in float32, each rounding to 8 bits",
    ),
    Tolerance("norm_gate_up", torch.float64, 1e-12, "as norm_linear, two sums near 1 multiplied, in float64"),
    Tolerance("norm_gate_up", torch.float32, 2e-05, "as norm_linear, two sums near 1 multiplied, in float32"),
    Tolerance(
        "norm_gate_up",
        torch.bfloat16,
        0.03,
        "as norm_linear, two sums near 1 multiplied, in float32, each rounding to 8 bits",
    ),
    Tolerance("linear_add", torch.float64, 1e-12, "as narrow_linear, and one addition, in float64"),
    Tolerance("linear_add", torch.float32, 2e-05, "as narrow_linear, and one addition, in float32"),
    Tolerance(
        "linear_add",
        torch.bfloat16,
        0.03,
        "as narrow_linear, and one addition, in float32, each rounding to 8 bits",
    ),
    Tolerance("conv_verify", torch.float64, 1e-13, "sums of up to 5 terms of size 8, then one exponential, in float64"),
    Tolerance("conv_verify", torch.float32, 4e-6, "sums of up to 5 terms of size 8, then one fast exponential"),
    Tolerance("conv_verify", torch.bfloat16, 8e-3, _ROUNDED),
    Tolerance("conv_update", torch.float64, 1e-13, "as conv_verify"),
    Tolerance("conv_update", torch.float32, 4e-6, "as conv_verify"),
    Tolerance("conv_update", torch.bfloat16, 8e-3, _ROUNDED),
    Tolerance("gdn_verify", torch.float64, 1e-13, f"{_DELTA} in float64"),
    Tolerance("gdn_verify", torch.float32, 1e-5, f"{_DELTA} in float32; an error of the softplus is scaled by e^2"),
    Tolerance("gdn_verify", torch.bfloat16, 8e-3, f"{_ROUNDED}; states are float32"),
    Tolerance("gdn_update", torch.float64, 1e-13, "as gdn_verify"),
    Tolerance("gdn_update", torch.float32, 1e-5, "as gdn_verify"),
    Tolerance("gdn_update", torch.bfloat16, 8e-3, "as gdn_verify"),
    *(
        Tolerance(op, dtype, size, f"as gdn_verify, {_FOLDED}")
        for op in ("gdn_replay", "gdn_flush", "gdn_checkpoint")
        for dtype, size in ((torch.float64, 1e-12), (torch.float32, 2e-5), (torch.bfloat16, 2e-2))
    ),
    Tolerance("gated_norm", torch.float64, 1e-13, "one mean, one root and one exponential in float64"),
    Tolerance("gated_norm", torch.float32, 6e-6, "as rms_norm and silu_mul, multiplied"),
    Tolerance("gated_norm", torch.bfloat16, 8e-3, _ROUNDED),
)

_BOUNDS = {(row.name, row.dtype): row.bound for row in TABLE}


def bound(name: str, dtype: torch.dtype) -> float:
    """Return the bound for `name` at `dtype`; raise KeyError, naming both, where the table has no row."""
    try:
        return _BOUNDS[name, dtype]
    except KeyError:
        raise KeyError(
            f"no tolerance row for {name} in {dtype}: add one, with its reason, to tolerances.TABLE"
        ) from None


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
# models drift apart at that precision. Kernels have theirs above, and check runs real models in float32.
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
