"""Triton writes of KV entries in FP8 (e4m3fn), in integers. `T` tokens, `S` slots, `N` KV heads, `H` head size.

Rounding is done on the bits of float32, so that every device and the interpreter give the same byte.
"""

import triton
import triton.language as tl
from torch import Tensor

from draftproof.kernels.triton_common import power_of_two, strides

_STRIDES = ("s_ps", "s_pn", "s_xt", "s_xn", "s_it")


@triton.jit
def encode(y):
    """Return the byte of e4m3fn nearest to y (float32), saturated at 448; NaN is 0x7f."""
    bits = y.to(tl.int32, bitcast=True)
    sign = (bits >> 24) & 0x80
    magnitude = tl.minimum(tl.where(y != y, 0.0, tl.abs(y)), 448.0)
    of_magnitude = magnitude.to(tl.int32, bitcast=True)
    # Of float32's 23 bits behind the point 3 are kept, and its bias of 127 becomes one of 7.
    normal = ((of_magnitude + 0x7FFFF + ((of_magnitude >> 20) & 1)) >> 20) - (120 << 3)
    # Beside 2^14 a unit of float32 is 2^-9, as that of e4m3fn below 2^-6.
    small = (magnitude + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    code = tl.where(magnitude < 0.015625, small, normal)
    return tl.where(y != y, 0x7F, code | sign).to(tl.uint8)


@triton.jit
def decode(codes):
    """Return the float32 that bytes of e4m3fn stand for."""
    code = codes.to(tl.int32)
    body, exponent, part = code & 0x7F, (code >> 3) & 15, code & 7
    normal = (((exponent + 120) << 23) | (part << 20)).to(tl.float32, bitcast=True)
    value = tl.where(exponent == 0, part.to(tl.float32) * 0.001953125, normal)
    value = tl.where(body == 0x7F, float("nan"), value)
    return tl.where(code >= 128, -value, value)


@triton.jit(do_not_specialize=["size", "heads", "width", *_STRIDES])
def _fp8_write_kernel(
    p_pool, p_rows, p_slot_mapping, scale, size, heads, width, s_ps, s_pn, s_ph, s_xt, s_xn, s_xh, s_it,
    BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Write row t of rows [T,N,H] to slot slot_mapping[t] of the pool [S,N,H]."""
    i_t = tl.program_id(0).to(tl.int64)
    slot = tl.load(p_slot_mapping + i_t * s_it).to(tl.int64)
    stored = tl.where((slot >= 0) & (slot < size), heads, 0)
    o_n = tl.arange(0, BLOCK_N).to(tl.int64)[:, None]
    o_h = tl.arange(0, BLOCK_H).to(tl.int64)[None, :]
    mask = (o_n < heads) & (o_h < width)
    b_x = tl.load(p_rows + i_t * s_xt + o_n * s_xn + o_h * s_xh, mask=mask, other=0).to(tl.float32)
    b_code = encode(tl.div_rn(b_x, tl.zeros_like(b_x) + scale))
    tl.store(p_pool + slot * s_ps + o_n * s_pn + o_h * s_ph, b_code, mask=mask & (o_n < stored))


def fp8_write(
    k_pool: Tensor, v_pool: Tensor, k: Tensor, v: Tensor, slot_mapping: Tensor, k_scale: float, v_scale: float
) -> None:
    """Launch one program a token, for keys and for values; see the eager function."""
    if slot_mapping.shape[0] == 0:
        return
    for pool, rows, scale in ((k_pool, k, k_scale), (v_pool, v, v_scale)):
        _fp8_write_kernel[(slot_mapping.shape[0],)](
            pool, rows, slot_mapping, scale, *pool.shape, *strides(pool, rows, slot_mapping),
            BLOCK_N=power_of_two(pool.shape[1]), BLOCK_H=power_of_two(pool.shape[2]),
        )  # fmt: skip
