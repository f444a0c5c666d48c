"""Eager writes of quantised KV entries, and what is read back of them.

`T` tokens, `S` pool slots, `N` KV heads, `H` head size of K or of V. An entry of a head is H codes and one scale.
"""

import numpy as np
import torch
from torch import Tensor

from draftproof.kernels.arrays import in_range
from draftproof.kernels.registry import register


@register("k_pool", "v_pool", "k_scales", "v_scales")
def quantised_write(
    k_pool: Tensor, v_pool: Tensor, k_scales: Tensor, v_scales: Tensor, k: Tensor, v: Tensor, slot_mapping: Tensor
) -> None:
    """Write row t of k [T,N,Hk] and v [T,N,Hv] to slot slot_mapping[t]: codes to the pools [S,N,H], scales to [S,N].

    Ring: codes of b bits, int8 or int16; the scale is the first number of a head, which has code 0, and the code of any
    other number is its top b bits. Slots outside [0,S) are skipped; only slot 0 may be named twice.
    """
    index = slot_mapping.numpy()
    inside = in_range(index, k_pool.shape[0])
    for pool, scales, rows in ((k_pool, k_scales, k), (v_pool, v_scales, v)):
        values, places = rows.numpy(), index
        if inside is not None:
            values, places = values[inside], places[inside]
        codes = values >> (64 - 8 * pool.element_size())
        codes[:, :, 0] = 0
        pool.numpy()[places] = codes
        scales.numpy()[places] = values[:, :, 0]


def read_back(codes: Tensor, scales: Tensor) -> Tensor:
    """Return what codes [..,H] of scales [..] stand for: the scale itself, then (scale | 1) * (2 code + 1)."""
    scale = scales.unsqueeze(-1)
    values = (scale | 1) * (2 * codes.to(torch.int64) + 1)
    values[..., :1] = scale
    return values


def read_back_on_host(codes: Tensor, scales: Tensor) -> Tensor:
    """Read back codes with their scales on the CPU, which takes a fraction of the time."""
    scale = scales.numpy()[..., None]
    values = codes.numpy().astype(np.int64)
    values *= 2
    values += 1
    values *= scale | 1
    values[..., :1] = scale
    return torch.from_numpy(values)
