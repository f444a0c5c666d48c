"""Experts that a checkpoint stores as one tensor for all, under the names that they have one by one.

The tensor `experts.gate_up_proj` is [X, 2F, D], gates above ups, and `experts.down_proj` [X, D, F], as transformers'
Qwen3.5 has them (its `Qwen3_5MoeExperts`). Shapes: `X` experts, `F` intermediate width, `D` hidden size.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from torch import Tensor

_FIRST = re.compile(r"(.+\.experts)\.0\.gate_proj\.weight")
_STACK = re.compile(r"(.+\.experts)\.gate_up_proj")


def stacked_shapes(shapes: Mapping[str, tuple[int, ...]], stored: Collection[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes with stacks in place of single experts, for each layer that is stored that way."""
    result = dict(shapes)
    for found in filter(None, map(_FIRST.fullmatch, shapes)):
        prefix, (inner, hidden) = found[1], shapes[found[0]]
        if f"{prefix}.gate_up_proj" not in stored:
            continue
        single = [name for name in result if name.startswith(f"{prefix}.") and name.count(".") - prefix.count(".") == 3]
        for name in single:
            del result[name]
        count = len(single) // 3
        result |= {f"{prefix}.gate_up_proj": (count, 2 * inner, hidden), f"{prefix}.down_proj": (count, hidden, inner)}
    return result


def unstacked(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with single experts in place of stacks."""
    result = dict(tensors)
    for found in filter(None, map(_STACK.fullmatch, tensors)):
        gate_up, down = result.pop(found[0]), result.pop(f"{found[1]}.down_proj")
        for i, (both, last) in enumerate(zip(gate_up, down, strict=True)):
            gate, up = both.chunk(2)
            for part, x in (("gate", gate), ("up", up), ("down", last)):
                result[f"{found[1]}.{i}.{part}_proj.weight"] = x
    return result
