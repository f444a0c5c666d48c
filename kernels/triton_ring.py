"""Triton arithmetic in the ring of integers modulo 2^64. `T` rows, `I` inputs, `O` outputs."""

import triton
import triton.language as tl
from torch import Tensor

from draftproof.kernels.triton_common import jit_for_any_size, mix, strides

_GOLDEN = 0x9E3779B97F4A7C15
_MODULUS = 1 << 64
_BLOCK = 256
_BLOCK_O, _BLOCK_I = 64, 64


@jit_for_any_size
def _ring_mix_kernel(p_out, p_x, added, count, size_b, size_c, s_oa, s_ob, s_oc, s_xa, s_xb, s_xc, BLOCK: tl.constexpr):
    """Mix x into out, both [a,b,c]: a program has a block of elements."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < count
    i_a = index // size_c // size_b
    i_b = index // size_c % size_b
    i_c = index % size_c
    b_x = tl.load(p_x + i_a * s_xa + i_b * s_xb + i_c * s_xc, mask=mask, other=0)
    tl.store(p_out + i_a * s_oa + i_b * s_ob + i_c * s_oc, mix(b_x + added), mask=mask)


@jit_for_any_size
def _ring_linear_kernel(
    p_out, p_x, p_weight, inputs, outputs, s_ot, s_oo, s_xt, s_xi, s_wo, s_wi,
    BLOCK_O: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """One row and block of outputs a program: out [T,O], x [T,I], weight [O,I]."""
    i_t = tl.program_id(0).to(tl.int64)
    o_o = tl.program_id(1).to(tl.int64) * BLOCK_O + tl.arange(0, BLOCK_O)
    b_sum = tl.zeros([BLOCK_O], dtype=tl.int64)
    for start in range(0, inputs, BLOCK_I):
        o_i = (start + tl.arange(0, BLOCK_I)).to(tl.int64)
        b_x = tl.load(p_x + i_t * s_xt + o_i * s_xi, mask=o_i < inputs, other=0)
        mask = (o_o[:, None] < outputs) & (o_i[None, :] < inputs)
        b_w = tl.load(p_weight + o_o[:, None] * s_wo + o_i[None, :] * s_wi, mask=mask, other=0)
        b_sum += tl.sum(b_x[None, :] * b_w, 1)
    tl.store(p_out + i_t * s_ot + o_o * s_oo, b_sum, mask=o_o < outputs)


def ring_mix(out: Tensor, x: Tensor, salt: int) -> None:
    """Launch over all elements; see the eager function."""
    count = x.numel()
    if count == 0:
        return
    added = salt * _GOLDEN % _MODULUS
    shape, missing = [1, 1, 1, *x.shape][-3:], [0] * (3 - x.ndim)
    _ring_mix_kernel[(triton.cdiv(count, _BLOCK),)](
        out, x, added - _MODULUS if added >= _MODULUS // 2 else added, count, *shape[1:], *missing, *out.stride(),
        *missing, *x.stride(),
        BLOCK=_BLOCK,
    )  # fmt: skip


def ring_linear(out: Tensor, x: Tensor, weight: Tensor) -> None:
    """Launch one program a row and block of outputs; see the eager function."""
    if out.numel() == 0:
        return
    _ring_linear_kernel[(x.shape[0], triton.cdiv(weight.shape[0], _BLOCK_O))](
        out, x, weight, weight.shape[1], weight.shape[0], *strides(out, x, weight),
        BLOCK_O=_BLOCK_O, BLOCK_I=_BLOCK_I,
    )  # fmt: skip
