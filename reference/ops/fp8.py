"""Naive twins of the ops on entries in FP8 (e4m3fn). `T` tokens, `S` pool slots, `N` KV heads, `H` head size."""

import math

import torch
from torch import Tensor

from draftproof.reference.ops.arithmetic import rounded
from draftproof.reference.ops.cache import windowed_attention

_NAN = 0x7F


def fp8_write(
    k_pool: Tensor, v_pool: Tensor, k: Tensor, v: Tensor, slot_mapping: Tensor, k_scale: float, v_scale: float
) -> None:
    """Write each row as the bytes nearest to its numbers over the scale; a slot that does not exist is skipped."""
    for t, slot in enumerate(slot_mapping.tolist()):
        if not 0 <= slot < k_pool.shape[0]:
            continue
        for pool, row, scale in ((k_pool, k[t], k_scale), (v_pool, v[t], v_scale)):
            heads = [rounded([x / scale for x in head], torch.float32) for head in row.tolist()]
            pool[slot] = torch.tensor([[_nearest(x) for x in head] for head in heads], dtype=torch.uint8)


def fp8_attention(
    out: Tensor,
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    page_table: Tensor,
    req_rows: Tensor,
    first: Tensor,
    positions: Tensor,
    page_size: int,
    scale: float,
    k_scale: float,
    v_scale: float,
) -> None:
    """Attend to the numbers that the bytes stand for, times the scales."""
    pools = (_read(k_pool, k_scale), _read(v_pool, v_scale))
    windowed_attention(out, q, *pools, page_table, req_rows, first, positions, page_size, scale)


def _read(pool: Tensor, scale: float) -> Tensor:
    table = torch.tensor([_number(code) for code in range(256)], dtype=torch.float64)
    return table[pool.long()] * scale


def _number(code: int) -> float:
    """Return what a byte stands for: a sign, four bits of exponent with a bias of 7, three behind the point."""
    exponent, part = (code >> 3) & 15, code & 7
    if code & 0x7F == _NAN:
        return math.nan
    size = math.ldexp(part, -9) if exponent == 0 else math.ldexp(8 + part, exponent - 10)
    return -size if code & 0x80 else size


# All finite sizes, in the order of their bytes.
_SIZES = tuple(_number(code) for code in range(_NAN))


def _nearest(x: float) -> int:
    """Return the byte nearest to a number, the even one of two; the largest of what is beyond it."""
    if math.isnan(x):
        return _NAN
    code = min(range(_NAN), key=lambda one: (abs(_SIZES[one] - abs(x)), one & 1))
    return code | (0x80 if math.copysign(1.0, x) < 0 else 0)
