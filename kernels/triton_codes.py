"""Triton writes of quantised KV entries. `T` tokens, `S` pool slots, `N` KV heads, `H` head size of K or of V."""

import triton.language as tl
from torch import Tensor

from draftproof.kernels.triton_cache import LEAST_H, LEAST_N
from draftproof.kernels.triton_common import jit_for_any_size, power_of_two, strides


@jit_for_any_size
def _quantised_write_kernel(
    p_pool, p_scales, p_rows, p_slot_mapping, size, heads, width, s_ps, s_pn, s_ph, s_cs, s_cn, s_xt, s_xn, s_xh, s_it,
    BITS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Write row t of rows [T,N,H] to slot slot_mapping[t]: codes to the pool [S,N,H], scales to [S,N]."""
    i_t = tl.program_id(0).to(tl.int64)
    slot = tl.load(p_slot_mapping + i_t * s_it).to(tl.int64)
    stored = tl.where((slot >= 0) & (slot < size), heads, 0)
    o_n = tl.arange(0, BLOCK_N).to(tl.int64)
    o_h = tl.arange(0, BLOCK_H).to(tl.int64)[None, :]
    mask = (o_n[:, None] < heads) & (o_h < width)
    b_x = tl.load(p_rows + i_t * s_xt + o_n[:, None] * s_xn + o_h * s_xh, mask=mask, other=0)
    b_codes = tl.where(o_h == 0, 0, b_x >> (64 - BITS))
    p_codes = p_pool + slot * s_ps + o_n[:, None] * s_pn + o_h * s_ph
    tl.store(p_codes, b_codes.to(p_pool.dtype.element_ty), mask=mask & (o_n[:, None] < stored))
    b_scale = tl.load(p_rows + i_t * s_xt + o_n * s_xn, mask=o_n < heads, other=0)
    tl.store(p_scales + slot * s_cs + o_n * s_cn, b_scale, mask=o_n < stored)


def quantised_write(
    k_pool: Tensor, v_pool: Tensor, k_scales: Tensor, v_scales: Tensor, k: Tensor, v: Tensor, slot_mapping: Tensor
) -> None:
    """Launch one program a token, for keys and for values; see the eager function."""
    if slot_mapping.shape[0] == 0:
        return
    for pool, scales, rows in ((k_pool, k_scales, k), (v_pool, v_scales, v)):
        _quantised_write_kernel[(slot_mapping.shape[0],)](
            pool, scales, rows, slot_mapping, *pool.shape, *strides(pool, scales, rows, slot_mapping),
            BITS=8 * pool.element_size(), BLOCK_N=power_of_two(pool.shape[1], LEAST_N),
            BLOCK_H=power_of_two(pool.shape[2], LEAST_H),
        )  # fmt: skip
