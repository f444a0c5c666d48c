"""Probe models and heads, mostly of pairwise distinct sizes: many wrong strides hide behind sizes that are equal."""

from __future__ import annotations

from typing import Literal

from draftproof.properties.choose import Choose
from draftproof.properties.values.drafts import Eagle
from draftproof.properties.values.scenario import LayerType, Linear, ProbeModel

_Sizes = Literal["keys", "states", "widths"]
Alike = frozenset[_Sizes]
"""Which sizes are equal here that differ in most models: keys and values, the sides of a state, draft and target."""
_ALIKE: tuple[Alike, ...] = (
    *(Alike(),) * 12,
    Alike(("keys", "states", "widths")),
    Alike(("keys",)),
    Alike(("states", "widths")),
)
_FULL: LayerType = "full_attention"
_LINEAR: LayerType = "linear_attention"
_PATTERNS: tuple[tuple[LayerType, ...], ...] = (
    (_LINEAR, _FULL),
    (_FULL, _LINEAR),
    (_LINEAR, _LINEAR, _FULL),
    (_LINEAR, _FULL, _LINEAR),
    (_FULL, _LINEAR, _FULL),
    (_LINEAR, _FULL, _LINEAR, _FULL),
)


def _distinct(choose: Choose, low: int, high: int, taken: set[int]) -> int:
    """Draw a size that none of `taken` is: sizes that happen to be equal hide swapped axes."""
    free = [size for size in range(low, high + 1) if size not in taken]
    size = choose.one_of(free)
    taken.add(size)
    return size


def models(choose: Choose, hybrid: bool, layers: int = 4, least: int = 1) -> tuple[ProbeModel, Eagle]:
    """Draw head sizes and widths of target and head, pairwise distinct except some in a fifth of the cases.

    Queries are grouped half the time; a target has from `least` to `layers` layers.
    """
    alike, taken = choose.one_of(_ALIKE), set[int]()
    key, value = _distinct(choose, 2, 4, taken), _distinct(choose, 2, 5, taken)
    head_key, head_value = _distinct(choose, 1, 6, taken), _distinct(choose, 1, 7, taken)
    lanes, head_lanes = _distinct(choose, 3, 8, taken), _distinct(choose, 3, 9, taken)
    if "keys" in alike:
        value, head_value = key, head_key
    if "widths" in alike:
        head_lanes = lanes
    kv_heads, groups = choose.one_of(((1, 2), (2, 1), (2, 2), (1, 3)))
    head_kv, head_groups = choose.one_of(((3, 1), (1, 1), (1, 2)))
    patterns = [types for types in _PATTERNS if least <= len(types) <= layers]
    types = choose.one_of(patterns) if hybrid else ()
    vocab = choose.one_of((37, 23, 61, 131, 509))
    model = ProbeModel(
        seed=choose.integer(0, 15),
        layers=len(types) or max(least, min(choose.one_of((1, 2, 2, 3)), layers)),
        heads=kv_heads * groups,
        kv_heads=kv_heads,
        key_dim=key,
        value_dim=value,
        lanes=lanes,
        vocab=vocab,
        logit_bits=choose.one_of((23, 23, 23, 3, 2)),
        agreement=choose.one_of((192, 256, 128, 0)),
        layer_types=types,
        linear=_linear(choose, "states" in alike) if hybrid else None,
    )
    head = Eagle(
        seed=choose.integer(0, 15),
        heads=head_kv * head_groups,
        kv_heads=head_kv,
        key_dim=head_key,
        value_dim=head_value,
        lanes=head_lanes,
    )
    return model, head


def _linear(choose: Choose, square: bool) -> Linear:
    """Draw K and V sizes; half have value heads that share a key head, half a start that is not zero."""
    key_heads, value_heads = choose.one_of(((1, 2), (1, 1), (2, 2), (2, 4)))
    taken = {value_heads}
    key = _distinct(choose, 1, 4, taken)
    return Linear(
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=key,
        value_dim=key if square else _distinct(choose, 1, 4, taken),
        conv=choose.one_of((2, 3, 4)),
        start=choose.boolean(),
    )
