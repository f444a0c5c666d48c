"""Probe models and heads, mostly of pairwise distinct sizes: many wrong strides hide behind sizes that are equal."""

from __future__ import annotations

from hypothesis import strategies as st

from draftproof.properties.strategies.decks import Alike
from draftproof.properties.strategies.examples import composed, integers, sampled
from draftproof.properties.values.drafts import Eagle, StateOf
from draftproof.properties.values.scenario import LayerType, Linear, ProbeModel

Draw = st.DrawFn

_AT_TIMES = sampled((False, False, True))
_STATES: st.SearchStrategy[StateOf] = sampled(("after_norm", "after_norm", "before_norm"))
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


def _distinct(draw: Draw, low: int, high: int, taken: set[int]) -> int:
    """Draw a size that none of `taken` is: sizes that happen to be equal hide swapped axes."""
    free = [size for size in range(low, high + 1) if size not in taken]
    size = draw(sampled(free))
    taken.add(size)
    return size


@composed
def models(draw: Draw, hybrid: bool, alike: Alike = frozenset(), layers: int = 4) -> tuple[ProbeModel, Eagle]:
    """Draw head sizes and widths of target and head, pairwise distinct but for those that are to be alike.

    Queries are grouped half the time; a target has at most `layers` layers.
    """
    taken: set[int] = set()
    key, value = _distinct(draw, 2, 4, taken), _distinct(draw, 2, 5, taken)
    head_key, head_value = _distinct(draw, 1, 6, taken), _distinct(draw, 1, 7, taken)
    lanes, head_lanes = _distinct(draw, 3, 8, taken), _distinct(draw, 3, 9, taken)
    if "keys" in alike:
        value, head_value = key, head_key
    if "widths" in alike:
        head_lanes = lanes
    kv_heads, groups = draw(sampled(((1, 2), (2, 1), (2, 2), (1, 3))))
    head_kv, head_groups = draw(sampled(((3, 1), (1, 1), (1, 2))))
    patterns = [types for types in _PATTERNS if len(types) <= layers]
    types = draw(sampled(patterns)) if hybrid else ()
    vocab = draw(sampled((37, 23, 61, 131, 509)))
    model = ProbeModel(
        seed=draw(integers(0, 15)),
        layers=len(types) or min(draw(sampled((1, 2, 2, 3))), layers),
        heads=kv_heads * groups,
        kv_heads=kv_heads,
        key_dim=key,
        value_dim=value,
        lanes=lanes,
        vocab=vocab,
        logit_bits=draw(sampled((23, 23, 23, 3, 2))),
        agreement=draw(sampled((192, 256, 128, 0))),
        layer_types=types,
        linear=draw(_linear("states" in alike)) if hybrid else None,
    )
    head = Eagle(
        seed=draw(integers(0, 15)),
        heads=head_kv * head_groups,
        kv_heads=head_kv,
        key_dim=head_key,
        value_dim=head_value,
        lanes=head_lanes,
        takes=draw(_STATES),
        handed=draw(_STATES),
        own_embedding=draw(_AT_TIMES),
        own_head=draw(_AT_TIMES),
        # Mostly without the favourites of one context in eight, or with all tokens in another order.
        head_vocab=draw(sampled((0, 0, 0, vocab - vocab // 8, vocab))),
        masks_first=draw(_AT_TIMES),
    )
    return model, head


@composed
def _linear(draw: Draw, square: bool) -> Linear:
    """Draw K and V sizes; half have value heads that share a key head, half a start that is not zero."""
    key_heads, value_heads = draw(sampled(((1, 2), (1, 1), (2, 2), (2, 4))))
    taken = {value_heads}
    key = _distinct(draw, 1, 4, taken)
    return Linear(
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=key,
        value_dim=key if square else _distinct(draw, 1, 4, taken),
        conv=draw(sampled((2, 3, 4))),
        start=draw(st.booleans()),
    )
