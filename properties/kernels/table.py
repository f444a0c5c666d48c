"""The table of kernel ops: what each promises, which arguments it writes, and how close its floats have to be.

Free of torch. `OPS` has one row an op, for all code that needs the names of ops, what they write, or their bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import ModuleType
from typing import Any


class OpValues(StrEnum):
    """Kinds of values that an op takes: integers only, floats only, or the ring of int64 besides floats."""

    INTEGER = "integer"
    FLOAT = "float"
    RING_AND_FLOAT = "ring and float"


@dataclass(frozen=True)
class Tolerance:
    """Largest |got - expected| / (1 + |expected|) allowed, where expected is computed in float64, and why."""

    bound: float
    reason: str


@dataclass(frozen=True)
class Op:
    """One kernel op.

    `writes` lists the arguments that it writes, `moves` those of them that are only copied and so stay exact in floats
    too. `tolerances` has a row for each float dtype of the computed values; `rounded_like` names the argument whose
    dtype decides, where it is not the output's own. `scratch` are pools in which several rows may write slot 0, and any
    of them may win. `letters` are the dimensions of arguments, "." a dimension without a name.
    """

    name: str
    writes: tuple[str, ...]
    values: OpValues = OpValues.INTEGER
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    moves: tuple[str, ...] = ()
    rounded_like: str = ""
    scratch: tuple[str, ...] = ()
    letters: Mapping[str, str] = field(default_factory=dict)

    def bound(self, argument: str, dtype: str) -> float | None:
        """Return the bound for an argument in a dtype such as "float32", None if it has to be equal to the bit.

        Raises KeyError, naming both, for a dtype without a tolerance.
        """
        if not self.tolerances or argument not in self.writes or argument in self.moves:
            return None
        try:
            return self.tolerances[dtype].bound
        except KeyError:
            raise KeyError(f"no tolerance for {self.name} in {dtype}: add one, with its reason, to table.py") from None


def _floats(
    float64: tuple[float, str], float32: tuple[float, str], bfloat16: tuple[float, str]
) -> Mapping[str, Tolerance]:
    """Return the bounds of each dtype; float16, which has three bits more than bfloat16, has an eighth of its bound."""
    rows = {"float64": float64, "float32": float32, "bfloat16": bfloat16}
    rows["float16"] = (bfloat16[0] / 8, f"{bfloat16[1]}; of float16, which has three bits more, an eighth")
    return {dtype: Tolerance(*row) for dtype, row in rows.items()}


def _linear(text: str) -> Mapping[str, Tolerance]:
    return _floats(
        (1e-12, f"{text}, in float64"),
        (2e-5, f"{text}, in float32"),
        (3e-2, f"{text}, in float32, each rounding to 8 bits"),
    )


_FLOAT, _RING = OpValues.FLOAT, OpValues.RING_AND_FLOAT
_ROUNDED = "computed in float32, rounded once or twice to the 8 bits of bfloat16: one unit is 2^-8 of the value"
_SUM = "sums of up to a few hundred terms of size 4 in {wide}, each step rounded to {ulp}"
_DELTA = "up to 9 tokens of sums of up to 6 terms of size 4, keys of length 1, decay below 1,"
_FOLDED = (
    "as gdn_verify, after a convolution that is rounded to the dtype of the inputs: where float32 and float64 fall on"
    " two sides of a rounding, a key or value moves by a unit of it, so the state, float32 itself, is as coarse"
)
_CONV = _floats(
    (1e-13, "sums of up to 5 terms of size 8, then one exponential, in float64"),
    (4e-6, "sums of up to 5 terms of size 8, then one fast exponential"),
    (8e-3, _ROUNDED),
)
_GDN = _floats(
    (1e-13, f"{_DELTA} in float64"),
    (1e-5, f"{_DELTA} in float32; an error of the softplus is scaled by e^2"),
    (8e-3, f"{_ROUNDED}; states are float32"),
)
_REPLAY = _floats((1e-12, _FOLDED), (2e-5, _FOLDED), (2e-2, _FOLDED))
_ATTENTION = _floats(
    (1e-12, _SUM.format(wide="float64", ulp="2^-53")),
    (2e-5, _SUM.format(wide="float32", ulp="2^-24")),
    (2e-2, "weights and output are rounded to 8 bits; values reach 4"),
)
_TOKEN = _floats(
    (1e-11, "norm, product, angle and softmax, each in float64"),
    (6e-5, "norm, product, angle and softmax, each in float32; scores reach some tens"),
    (6e-2, "x, q and k are each rounded to 8 bits before scores, which reach some tens"),
)
_NORM = _floats(
    (1e-13, "one mean and one root in float64"),
    (2e-6, "one mean in float32 and an approximate reciprocal root (2 units)"),
    (2e-2, f"{_ROUNDED}; the first rounding is scaled by the weight"),
)
_ADD_NORM = _floats(
    (1e-13, "as rms_norm, after one exact or once rounded addition"),
    (2e-6, "as rms_norm, after one exact or once rounded addition"),
    (2e-2, "as rms_norm; the addition in float32 is rounded twice"),
)
_SILU = _floats(
    (1e-13, "one exponential and one quotient in float64"),
    (4e-6, "one fast exponential (2 units) and one quotient, times up to 4"),
    (8e-3, _ROUNDED),
)
_ROPE = _floats(
    (1e-11, "the angle, up to 5000, is rounded before sine and cosine"),
    (4e-6, "sine and cosine of a float32 angle to 2 units, times up to 4"),
    (8e-3, _ROUNDED),
)
_GATED_NORM = _floats(
    (1e-13, "one mean, one root and one exponential in float64"),
    (6e-6, "as rms_norm and silu_mul, multiplied"),
    (8e-3, _ROUNDED),
)
_LETTERS = {
    "conv_verify": {"out": "BWQ", "windows": "RA.Q", "x": "BWQ", "conv": "S.Q", "weight": "QC"},
    "gdn_verify": {"out": "BWUE", "states": "RAUHE", "qkv": "BWQ", "ssm": "SUHE"},
    "gdn_replay": {"out": "BWUE", "ssm": "SUHE", "inputs": ".S.Q", "gates": ".SA.U", "x": "BWQ"},
    "state_scatter": {"pool": "LS...", "steps": "LRA...", "state_slots": "B"},
}

_QUANTISED = ("k_pool", "v_pool", "k_scales", "v_scales")
# A comment above each row is the op's promise.
_ROWS = (
    # Every row is in its slot to the bit, and nothing else in either pool changed.
    Op("kv_write", ("k_pool", "v_pool"), _RING, scratch=("k_pool", "v_pool")),
    # Every target slot holds what its source held before the call, and nothing else in either pool changed.
    Op("kv_move", ("k_pool", "v_pool"), _RING),
    # Each token attends to exactly the positions it may see, whatever lies in the slots of others.
    Op("paged_attention", ("out",), _RING, _ATTENTION),
    # Each entry is its first number and the codes of the others, at its own slot and nowhere else.
    Op("quantised_write", _QUANTISED, scratch=_QUANTISED),
    # Each code is read with the scale of its own entry and head.
    Op("quantised_attention", ("out",)),
    # Each number is the nearest of e4m3fn to it over its scale, saturated, at its own slot and nowhere else.
    Op("fp8_write", ("k_pool", "v_pool"), _FLOAT, scratch=("k_pool", "v_pool")),
    # Each byte is read as the number of e4m3fn that it is, times the scale of keys or of values.
    Op("fp8_attention", ("out",), _FLOAT, _ATTENTION),
    # Each token attends to exactly the positions of its own window, and to none before its first.
    Op("windowed_attention", ("out",), _RING, _ATTENTION),
    # The token attends to what it may see, itself rotated by its position, and its entry is in its slot and only there.
    Op("token_attention", ("out", "k_pool", "v_pool"), _FLOAT, _TOKEN),
    # Each row is normed by its own mean square, rounded, then weighted.
    Op("rms_norm", ("out",), _FLOAT, _NORM),
    # The residual is updated, and the norm is taken of the updated residual.
    Op("add_rms_norm", ("out", "residual"), _FLOAT, _ADD_NORM),
    # The first half gates the second.
    Op("silu_mul", ("out",), _FLOAT, _SILU),
    # Queries and keys of each token are rotated by that token's position.
    Op("rope", ("q", "k"), _FLOAT, _ROPE),
    # The output is the product of a few tokens with a weight.
    Op("narrow_linear", ("out",), _FLOAT, _linear("one sum of up to 40 terms near 1/2")),
    # The output is the product of the normed and rounded input with a weight; the input itself stays.
    Op("norm_linear", ("out",), _FLOAT, _linear("as narrow_linear, of an input from rms_norm")),
    # The first half of the weight gates the second.
    Op("norm_gate_up", ("out",), _FLOAT, _linear("as norm_linear, two sums near 1 multiplied")),
    # The product is added to the residual once.
    Op("linear_add", ("residual",), _FLOAT, _linear("as narrow_linear, and one addition")),
    # Live, surplus, padding and impossible columns get the positions and slots that are theirs.
    Op("assign_slots", ("positions", "slot_mapping")),
    # The accepted run ends at the first mismatch or after the row's drafts; the bonus is the target's token there.
    Op("greedy_accept", ("correct_len", "bonus", "accept_index")),
    # The highest value wins, the lowest id on ties, and NaN loses to every number.
    Op("greedy_choice", ("token_ids",), _RING),
    # The highest values in order, the lowest id first on ties, each with how far it is below the highest.
    Op("best_choices", ("token_ids", "scores"), _FLOAT, moves=("scores",)),
    # The walk goes from a row to the child with its target's token; the bonus is the target's token at its end.
    Op("accept_tree", ("correct_len", "bonus", "accept_index")),
    # A draft is accepted by its weight, or another token drawn by theirs; a row without weights keeps its token.
    Op("sampled_choice", ("token_ids",)),
    # A drawn draft is accepted by both weights, or another token drawn by their difference; any other row stays.
    Op("rejection_choice", ("token_ids",)),
    # Every row is penalised for its request's text and its own path; a row without a repetition penalty stays.
    Op("apply_penalties", ("logits",)),
    # Every element is mixed to the bit, whatever the strides.
    Op("ring_mix", ("out",)),
    # The product is equal to the bit modulo 2^64.
    Op("ring_linear", ("out",)),
    # The window after every row is in that row's place, by the pool's own strides; the committed one stays.
    Op("conv_verify", ("out", "windows"), _RING, _CONV, ("windows",), letters=_LETTERS["conv_verify"]),
    # As conv_verify; the window of a row has its ancestors, and before row 0 the committed window.
    Op("conv_verify_tree", ("out", "windows"), _RING, _CONV, ("windows",), letters=_LETTERS["conv_verify"]),
    # Each sequence continues from its slot's window and leaves its last inputs there; checkpoints are copied.
    Op("conv_update", ("out", "conv", "checkpoint_conv"), _RING, _CONV, ("conv", "checkpoint_conv")),
    # The state after every row is in that row's place, by the pool's own strides; the committed one stays.
    Op("gdn_verify", ("out", "states"), _RING, _GDN, letters=_LETTERS["gdn_verify"]),
    # As gdn_verify, where each row goes on from the state after its parent, and row 0 from the committed one.
    Op("gdn_verify_tree", ("out", "states"), _RING, _GDN, letters=_LETTERS["gdn_verify"]),
    # Each sequence continues from its slot's state and leaves its last one there; checkpoints are copied.
    Op("gdn_update", ("out", "ssm", "checkpoint_ssm"), _RING, _GDN),
    # Each row is normed by its own mean square, weighted, and gated.
    Op("gated_norm", ("out",), _RING, _GATED_NORM),
    # The state after the last correct step is the slot's, to the bit, in all layers; no other slot changes.
    Op("state_scatter", ("pool",), _RING, letters=_LETTERS["state_scatter"]),
    # Each row gets the step at which it reaches the last multiple of the interval, or -1 if there is none.
    Op("checkpoint_steps", ("steps",)),
    # Pending tokens are folded into the base, the new rows are saved as inputs only, and the cursor stays.
    Op(
        "gdn_replay",
        ("out", "ssm", "inputs", "gates"),
        _RING,
        _REPLAY,
        ("inputs", "gates"),
        "inputs",
        letters=_LETTERS["gdn_replay"],
    ),
    # As gdn_replay, where each new row goes on from its parent, and row 0 from the folded state.
    Op(
        "gdn_replay_tree",
        ("out", "ssm", "inputs", "gates"),
        _RING,
        _REPLAY,
        ("inputs", "gates"),
        "inputs",
        letters=_LETTERS["gdn_replay"],
    ),
    # What was kept of the accepted rows comes one after the other, in all layers, in the half that verify wrote.
    Op("replay_move", ("inputs", "gates"), _RING),
    # Everything pending is folded into the base once, and the window follows; the cursor stays.
    Op("gdn_flush", ("ssm", "inputs"), _RING, _REPLAY, ("inputs",), "inputs"),
    # State and window after a pending step are the checkpoint's; base, inputs and cursor stay.
    Op(
        "gdn_checkpoint",
        ("checkpoint_ssm", "checkpoint_conv"),
        _RING,
        _REPLAY,
        ("checkpoint_conv",),
        "inputs",
    ),
    # The accepted rows become pending in the half that verify wrote.
    Op("replay_commit", ("cursor",)),
    # Nothing is pending any more; the halves are exchanged where something was, and only there.
    Op("replay_rewind", ("cursor",)),
)
OPS: Mapping[str, Op] = {op.name: op for op in sorted(_ROWS, key=lambda op: op.name)}
"""Every op by its name, sorted."""

MOST_CALLS = 32
"""No list of an op's calls needs more to come to all that is wanted of them (blocks.py)."""
KERNEL_PREFIX = "kernel."
KERNEL_CONTRACTS = tuple(f"{KERNEL_PREFIX}{op}" for op in OPS)
"""Names of the kernel contracts, as a fault's header has them; their channels are kernel.<argument>."""


def functions_of(modules: Iterable[ModuleType], ops: Mapping[str, Op] = OPS) -> dict[str, Any]:
    """Return the function that each op has in one of the modules, by the op's name.

    Raises ValueError for an op without one.
    """
    named = {name: value for module in modules for name, value in vars(module).items() if name in ops}
    missing = ops.keys() - named.keys()
    if missing:
        raise ValueError(f"no function for {', '.join(sorted(missing))}: expected one in the modules given")
    return {name: named[name] for name in ops}
