"""Triton layers without a cache. `T` packed tokens, `D` width, `N` heads, `H` head size."""

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.triton_common import dependent_launch, power_of_two, strides

_BLOCK = 1024
_ROPE_HEADS = 8


@triton.jit(do_not_specialize=["s_ot", "s_rt", "s_xt"])
def _rms_norm_kernel(
    p_out, p_residual, p_x, p_weight, eps, s_ot, s_od, s_rt, s_rd, s_xt, s_xd, s_w, width,
    ADD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row a program, read whole before anything is written, so that out may be x or the residual."""
    i_t = tl.program_id(0).to(tl.int64)
    o_d = tl.arange(0, BLOCK).to(tl.int64)
    mask = o_d < width
    b_x = tl.load(p_x + i_t * s_xt + o_d * s_xd, mask=mask, other=0.0)
    if ADD:
        b_held = tl.load(p_residual + i_t * s_rt + o_d * s_rd, mask=mask, other=0.0)
        b_x = (b_held.to(tl.float32) + b_x.to(tl.float32)).to(b_held.dtype)
        tl.store(p_residual + i_t * s_rt + o_d * s_rd, b_x, mask=mask)
    b_weight = tl.load(p_weight + o_d * s_w, mask=mask, other=0.0)
    b_wide = b_x.to(tl.float32)
    b_normed = b_wide * tl.rsqrt(tl.sum(b_wide * b_wide, 0) / width + eps)
    b_out = b_normed.to(b_weight.dtype).to(tl.float32) * b_weight.to(tl.float32)
    tl.store(p_out + i_t * s_ot + o_d * s_od, b_out.to(p_out.dtype.element_ty), mask=mask)


def rms_norm(out: Tensor, x: Tensor, weight: Tensor, eps: float) -> None:
    """Launch one program a row; see the eager function."""
    _launch_norm(out, x, x, weight, eps, add=False)


def add_rms_norm(out: Tensor, residual: Tensor, x: Tensor, weight: Tensor, eps: float) -> None:
    """Launch one program a row; see the eager function."""
    _launch_norm(out, residual, x, weight, eps, add=True)


def _launch_norm(out: Tensor, residual: Tensor, x: Tensor, weight: Tensor, eps: float, *, add: bool) -> None:
    if out.numel() == 0:
        return
    block = power_of_two(x.shape[1])
    _rms_norm_kernel[(x.shape[0],)](
        out, residual, x, weight, eps, *strides(out, residual, x, weight), x.shape[1],
        ADD=add, BLOCK=block, num_warps=min(16, max(1, block // 256)),
    )  # fmt: skip


@triton.jit(do_not_specialize=["width", "s_ot", "s_xt"])
def _silu_mul_kernel(p_out, p_x, width, s_ot, s_od, s_xt, s_xd, BLOCK: tl.constexpr):
    """One row and block of columns a program: out [T,D] of x [T,2D]."""
    i_t = tl.program_id(0).to(tl.int64)
    o_d = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = o_d < width
    b_gate = tl.load(p_x + i_t * s_xt + o_d * s_xd, mask=mask, other=0.0).to(tl.float32)
    b_up = tl.load(p_x + i_t * s_xt + (o_d + width) * s_xd, mask=mask, other=0.0).to(tl.float32)
    b_out = b_gate / (1.0 + tl.exp(-b_gate)) * b_up
    tl.store(p_out + i_t * s_ot + o_d * s_od, b_out.to(p_out.dtype.element_ty), mask=mask)


def silu_mul(out: Tensor, gate_up: Tensor) -> None:
    """Launch one program a row and block of columns; see the eager function."""
    if out.numel() == 0:
        return
    block = min(_BLOCK, power_of_two(out.shape[1]))
    grid = (out.shape[0], triton.cdiv(out.shape[1], block))
    _silu_mul_kernel[grid](out, gate_up, out.shape[1], *strides(out, gate_up), BLOCK=block)


@triton.jit
def _rotate(
    p_heads, p_position, p_inv_freq, first, heads, half, s_n, s_h, s_f, BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr
):
    """Rotate heads first .. first + BLOCK_N - 1 of one token in place. All loads are asked for before any is used."""
    o_n = first + tl.arange(0, BLOCK_N).to(tl.int64)[:, None]
    o_h = tl.arange(0, BLOCK_H).to(tl.int64)
    mask = (o_n < heads) & (o_h < half)[None, :]
    p_first = p_heads + o_n * s_n + o_h[None, :] * s_h
    p_second = p_heads + o_n * s_n + (o_h + half)[None, :] * s_h
    b_first = tl.load(p_first, mask=mask, other=0.0).to(tl.float32)
    b_second = tl.load(p_second, mask=mask, other=0.0).to(tl.float32)
    b_freq = tl.load(p_inv_freq + o_h * s_f, mask=o_h < half, other=0.0).to(tl.float32)
    b_angle = tl.load(p_position).to(tl.float32) * b_freq
    b_cos, b_sin = tl.cos(b_angle)[None, :], tl.sin(b_angle)[None, :]
    b_low = b_first * b_cos - b_second * b_sin
    b_high = b_second * b_cos + b_first * b_sin
    tl.store(p_first, b_low.to(p_heads.dtype.element_ty), mask=mask)
    tl.store(p_second, b_high.to(p_heads.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["q_heads", "k_heads", "half", "s_qt", "s_qn", "s_kt", "s_kn", "s_p", "s_f"])
def _rope_kernel(
    p_q, p_k, p_positions, p_inv_freq, q_heads, k_heads, half, s_qt, s_qn, s_qh, s_kt, s_kn, s_kh, s_p, s_f,
    BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One token and BLOCK_N heads a program: first the heads of q, then those of k."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    i_t, i_b = tl.program_id(0).to(tl.int64), tl.program_id(1)
    p_position = p_positions + i_t * s_p
    q_blocks = tl.cdiv(q_heads, BLOCK_N)
    if i_b < q_blocks:
        p_heads, first = p_q + i_t * s_qt, i_b * BLOCK_N
        _rotate(p_heads, p_position, p_inv_freq, first, q_heads, half, s_qn, s_qh, s_f, BLOCK_N, BLOCK_H)
    else:
        p_heads, first = p_k + i_t * s_kt, (i_b - q_blocks) * BLOCK_N
        _rotate(p_heads, p_position, p_inv_freq, first, k_heads, half, s_kn, s_kh, s_f, BLOCK_N, BLOCK_H)


def rope(q: Tensor, k: Tensor, positions: Tensor, inv_freq: Tensor) -> None:
    """Launch one program a token and block of heads; see the eager function."""
    if positions.shape[0] == 0:
        return
    blocks = sum(triton.cdiv(heads.shape[1], _ROPE_HEADS) for heads in (q, k))
    if blocks == 0:
        return
    _rope_kernel[(positions.shape[0], blocks)](
        q, k, positions, inv_freq, q.shape[1], k.shape[1], inv_freq.shape[0], *strides(q, k, positions, inv_freq),
        BLOCK_N=_ROPE_HEADS, BLOCK_H=power_of_two(inv_freq.shape[0]), **dependent_launch(q.device),
    )  # fmt: skip
