"""Bounds for the floats of real models, held against the float64 reference.

Bounds of kernels are in the table of ops (properties/kernels/table.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from draftproof.properties.values.observed import Choice, Datum, TokenIds
from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.properties.values.trace import Key, TokenGap

Near = Callable[[Key, np.ndarray, np.ndarray], bool]
Values = Mapping[Key, Datum]
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class Bound:
    """How far a vector of a real model may be from the float64 reference's, relative to its largest element (or 1).

    `units` of the dtype's machine epsilon at one token, times (1 + `growth` * ln(tokens behind it)), and `turn` units
    more for every position by which its keys are rotated.
    """

    units: float
    growth: float
    reason: str
    turn: float = 0.0


# Tight, as the reference's own run in float32 widens them where a model is ill-conditioned (CARRIED). Measured with the
# engine in float32 on tiny checkpoints of every architecture: at most 8 units, as far as that run is. A wrong epsilon,
# scale or base must not fit in. There are no bounds for bfloat16: states of tiny random models drift apart at that
# precision. Check runs real models in float32.
_TURNED = "; its keys are turned by position times base ** x, which float32 has to a unit or two"
_MODELS = {
    "verify.hidden": Bound(16, 0.5, "each layer rounds a few times its depth; softmax weights average over tokens"),
    "draft.step.hidden_in": Bound(16, 0.5, "as verify.hidden, through the head as often as steps were taken"),
    "draft.beam.hidden_in": Bound(16, 0.5, "as draft.step.hidden_in"),
    "extend.hidden_in": Bound(16, 0.5, "the target's hidden states, passed on"),
    "commit.kv": Bound(16, 0.5, f"a projection of a normed state{_TURNED}", turn=2),
    "extend.kv": Bound(16, 0.5, f"as commit.kv, after the head's own projection{_TURNED}", turn=2),
    **{
        f"commit.{name}": Bound(24, 0.5, "as commit.kv; the delta rule adds up what every token before contributed")
        for name in ("state", "intermediate", "base", "checkpoint", "final")
    },
    # Behind the rounding two neighbours are a sixteenth of a number apart or more, which no bound could let pass.
    "entry": Bound(16, 0.5, "as commit.kv, of a number before it is rounded to FP8 (S-KV-6); what is read is exact"),
    "logits": Bound(32, 0.5, "one dot product over the hidden width after the last hidden state"),
}
# Logits of the checkpoints in use lie within this; the margin alone does not tell their size.
LOGIT_SCALE = 16.0


CARRIED = 8.0
"""How many times as far from float64 a subject may be as the reference is in float32 (S-TRACE-10)."""
LUCK = 16.0
"""A difference beyond its bound by less than this factor is compared with further runs in float32.

One direction of an ill-conditioned vector causes all of its error, and a single run's error in it is near zero now and
then.
"""
CLOSE_EXPERTS = 16 * EPSILON["float32"]
"""A choice of experts with less than this between chosen and left out may be another in float32."""


def exactly(_key: Key, expected: np.ndarray, got: np.ndarray) -> bool:
    """Compare float vectors bit for bit: the default where no bound applies."""
    return np.array_equal(expected, got)


def limit(bound: Bound, dtype: str, tokens: int, scale: float) -> float:
    """Return the largest allowed difference for a vector whose largest reference element is `scale`."""
    units = bound.units * (1 + bound.growth * float(np.log(max(tokens, 1)))) + bound.turn * max(tokens - 1, 0)
    return units * EPSILON[dtype] * scale


def near(
    scenario: Scenario,
    channel: str,
    exact: Values,
    rounded: Values,
    again: Callable[[], Sequence[Values]] = tuple,
) -> Near:
    """Return the comparison of float vectors of a channel; NaN is never near.

    `exact` are the reference's vectors, `rounded` the vectors of its run in float32, as far as they are for the same
    tokens; `again` makes more of these, for a vector that is off by so little that the first may have been near by
    luck.
    """
    bound = _MODELS[channel] if channel in _MODELS else _MODELS["logits"]
    dtype = _dtype(scenario)
    carried = CARRIED * EPSILON[dtype] / EPSILON["float32"]
    usual = _usual(exact, rounded)

    def within(key: Key, expected: np.ndarray, got: np.ndarray) -> bool:
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        tokens = max(key.row, 0) + 1 if channel in ("commit.kv", "extend.kv") else scenario.memory.max_len
        own = max(usual, _distance(expected, rounded.get(key)))
        off, allowed = np.abs(expected - got), max(limit(bound, dtype, tokens, scale), carried * own)
        if (off <= allowed).all() or not (off <= LUCK * allowed).all():
            return bool((off <= allowed).all())
        others = [max(_usual(exact, other), _distance(expected, other.get(key))) for other in again()]
        return bool((off <= carried * max(others, default=0.0)).all())

    return within


def _usual(exact: Values, rounded: Values) -> float:
    """Return the root mean square of the distances of a channel's vectors: one may be near its float64 by luck."""
    distances = [_distance(exact.get(key), other) for key, other in rounded.items()]
    return float(np.sqrt(np.mean(np.square(distances)))) if distances else 0.0


def _distance(one: Datum | None, other: Datum | None) -> float:
    """Return the largest difference of two float vectors; 0 where one of them is none."""
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return 0.0
    return float(np.abs(one - other).max(initial=0.0))


def slack_of_entries(scenario: Scenario, position: int) -> float:
    """Return how far off a number may be before it is rounded to FP8, relative to the largest of its entry (or 1)."""
    return limit(_MODELS["entry"], _dtype(scenario), position + 1, 1.0)


def logit_bound(scenario: Scenario) -> float:
    """Return how far a logit may be from the reference's."""
    return limit(_MODELS["logits"], _dtype(scenario), scenario.memory.max_len, LOGIT_SCALE)


def is_near(scenario: Scenario, below: float, rounded: float | None) -> bool:
    """Return whether a logit `below` the best may itself be the best; `rounded` is the same distance in float32."""
    carried = 0.0 if rounded is None else CARRIED * abs(below - rounded)
    return below <= max(2 * logit_bound(scenario), carried)


def is_close(scenario: Scenario, expected: Choice, rounded: Choice | None) -> bool:
    """Return whether the margin of a choice of the reference is too small to tell; `rounded` is its own in float32."""
    carried = CARRIED * abs(expected[1] - rounded[1]) if rounded and rounded[0] == expected[0] else 0.0
    return expected[1] < max(2 * logit_bound(scenario), carried)


def is_right_token(scenario: Scenario, gap: TokenGap) -> bool:
    """Return whether a token is the best of its row as far as rounding can tell (S-TEXT-2)."""
    return is_best(scenario, gap) or gap.experts < CLOSE_EXPERTS


def is_best(scenario: Scenario, gap: TokenGap) -> bool:
    """Return the same, of a text in which no other experts may have been chosen."""
    return gap.below <= max(2 * logit_bound(scenario), CARRIED * gap.carried)


def right_part(scenario: Scenario, text: TokenIds, gaps: Sequence[TokenGap]) -> TokenIds:
    """Return the beginning of a text in which the gap of every token shows that it is right."""
    wrong = (place for place, gap in enumerate(gaps) if not is_best(scenario, gap))
    return text[: next(wrong, len(gaps))]


def _dtype(scenario: Scenario) -> str:
    return scenario.model.dtype if isinstance(scenario.model, Checkpoint) else "float64"
