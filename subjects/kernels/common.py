"""What bindings of kernels on recurrent state share.

`T` packed tokens, `N` key heads, `U` value heads, `Q` channels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

FLOATS = ("float32", "float16", "bfloat16")


def heads_of(qkv: Tensor, heads: int, height: int, values: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries and keys [1,T,N,H] and values [1,T,U,E] of packed channels [T,Q]."""
    width = (qkv.shape[-1] - heads * values) // 2
    q, k, v = qkv[None].split((width, width, heads * values), -1)
    return q.unflatten(-1, (-1, height)), k.unflatten(-1, (-1, height)), v.unflatten(-1, (heads, values))


def no_checkpoints(*arguments: Any) -> dict[str, Tensor]:
    """Return steps that track nothing, for kernels that leave checkpoints to others."""
    return {"checkpoint_steps": torch.full_like(arguments[-1], -1)}


def of_no_slot(out: Tensor, state_slots: Tensor, cu_seqlens: Tensor) -> dict[str, Tensor]:
    """Return the tokens of sequences that have no slot."""
    wild = torch.zeros(len(out), dtype=torch.bool)
    for slot, first, last in zip(state_slots.tolist(), cu_seqlens.tolist(), cu_seqlens.tolist()[1:], strict=False):
        wild[first:last] = slot < 0
    return {"out": wild}


def no_slot_zero(state_slots: Tensor) -> bool:
    """Return whether no sequence has slot 0, which a kernel takes for none."""
    return not bool((state_slots == 0).any())
