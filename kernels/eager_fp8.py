"""Eager writes of KV entries in FP8 (e4m3fn), and what is read back of them.

`T` tokens, `S` pool slots, `N` KV heads, `H` head size of K or of V. Pools are the bytes of e4m3fn numbers: Triton's
interpreter and numpy know no FP8.
"""

import torch
from torch import Tensor

from draftproof.kernels.arrays import in_range
from draftproof.kernels.registry import register

_LARGEST = 448.0
"""The largest finite number of e4m3fn, which has no infinity: what is beyond would become NaN."""


@register("k_pool", "v_pool")
def fp8_write(
    k_pool: Tensor, v_pool: Tensor, k: Tensor, v: Tensor, slot_mapping: Tensor, k_scale: float, v_scale: float
) -> None:
    """Write row t of k [T,N,Hk] and v [T,N,Hv] to slot slot_mapping[t] of the pools [S,N,H] of bytes.

    A number is divided by the scale in float32, kept within +-448, and rounded to the nearest of e4m3fn, on a tie to
    the even one. Slots outside [0,S) are skipped; only slot 0 may be named twice.
    """
    index = slot_mapping.numpy()
    inside = in_range(index, k_pool.shape[0])
    for pool, rows, scale in ((k_pool, k, k_scale), (v_pool, v, v_scale)):
        codes = encoded(rows, scale).numpy()
        if inside is None:
            pool.numpy()[index] = codes
        else:
            pool.numpy()[index[inside]] = codes[inside]


def encoded(x: Tensor, scale: float) -> Tensor:
    """Return the bytes that x is kept as."""
    scaled = x.float() / torch.tensor(scale, dtype=torch.float32)
    return scaled.clamp(-_LARGEST, _LARGEST).to(torch.float8_e4m3fn).view(torch.uint8)


def decoded(codes: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the numbers, not yet scaled, that bytes of a pool stand for: exact in every dtype of floats."""
    return codes.view(torch.float8_e4m3fn).to(dtype)
