"""Triton gated delta rule of a verify of few rows: what needs no state is done for all tokens while it is read.

Letters as in triton_delta; `S` state slots, `W` tokens a row, `Q` channels. With few programs a verify takes as long as
one of them: one load behind another, then one token behind another. So all loads are issued at once, and the chain of
tokens only does what needs the state.
"""

import math

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.triton_common import dependent_launch, power_of_two
from draftproof.kernels.triton_delta import (
    constants,
    delta_step,
    directions,
    gate,
    inner_sizes,
    is_packed,
    tile_offsets,
)

# Tokens of a row, which take registers, and programs, two a multiprocessor: with four triton_gdn is faster.
_MOST_TOKENS, _MOST_PROGRAMS = 4, 264
_BLOCK_E = 16


@triton.jit
def _none():
    """Return no values; the values of each token are added to it. A type checker would not let `()` grow."""
    return ()


@triton.jit
def _vectors(p_q, p_k, p_v, p_a, p_b, i_t, s_qt, s_at, s_bt, h_mask, e_mask):
    """Return the vectors and raw gates of token i_t as they are stored; volatile, or they are read one by one later."""
    b_q = tl.load(p_q + i_t * s_qt, mask=h_mask, other=0, volatile=True)
    b_k = tl.load(p_k + i_t * s_qt, mask=h_mask, other=0, volatile=True)
    b_v = tl.load(p_v + i_t * s_qt, mask=e_mask, other=0, volatile=True)
    return b_q, b_k, b_v, tl.load(p_a + i_t * s_at, volatile=True), tl.load(p_b + i_t * s_bt, volatile=True)


@triton.jit
def _prepared(vectors, a_log, dt_bias, scale):
    """Return query and key of length 1, their product, value, decay and beta of a token."""
    b_q, b_k, b_v, a, b = vectors
    decay, beta = gate(a.to(tl.float32), b.to(tl.float32), a_log, dt_bias, False)
    b_q, b_k, near = directions(b_q.to(tl.float32), b_k.to(tl.float32), scale, False)
    return b_q, b_k, near, b_v.to(tl.float32), decay, beta


@triton.jit(do_not_specialize=["size", "s_log", "s_bias", "s_slot"])
def _ahead_kernel(
    p_out, p_states, p_qkv, p_a, p_b, p_a_log, p_dt_bias, p_ssm, p_state_slots, size, scale,
    s_ob, s_ot, s_ou, s_oe, s_sb, s_st, s_su, s_sh, s_se, s_qb, s_qt, s_qd, s_ab, s_at, s_au, s_bb, s_bt, s_bu,
    s_log, s_bias, s_ms, s_mu, s_mh, s_me, s_slot,
    PACKED: tl.constexpr, EVEN: tl.constexpr, GROUP: tl.constexpr, KEYS: tl.constexpr, K_WIDTH: tl.constexpr,
    V_WIDTH: tl.constexpr, TOKENS: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_E: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One row, value head and block of columns a program; shapes as in gdn_verify."""
    i_u, i_b = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    o_h = tl.arange(0, BLOCK_H).to(tl.int64)
    o_e = tl.program_id(0).to(tl.int64) * BLOCK_E + tl.arange(0, BLOCK_E)
    # Without a comparison nothing is a matter of the place.
    h_mask, e_mask = tl.full([BLOCK_H], True, tl.int1), tl.full([BLOCK_E], True, tl.int1)
    if not EVEN:
        h_mask, e_mask = o_h < K_WIDTH, o_e < V_WIDTH
    mask = h_mask[:, None] & e_mask[None, :]
    # Model weights, which may be read before the wait.
    a_log = tl.load(p_a_log + i_u * s_log).to(tl.float32)
    dt_bias = tl.load(p_dt_bias + i_u * s_bias).to(tl.float32)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    slot = tl.load(p_state_slots + i_b * s_slot).to(tl.int64)
    known = (slot >= 0) & (slot < size)
    p_state = p_ssm + slot * s_ms + i_u * s_mu + tile_offsets(o_h, o_e, s_mh, s_me, V_WIDTH, PACKED)
    p_kept = p_states + i_b * s_sb + i_u * s_su + tile_offsets(o_h, o_e, s_sh, s_se, V_WIDTH, PACKED)
    p_q = p_qkv + i_b * s_qb + (i_u // GROUP * K_WIDTH + o_h) * s_qd
    p_k = p_q + KEYS * s_qd
    p_v = p_qkv + i_b * s_qb + (2 * KEYS + i_u * V_WIDTH + o_e) * s_qd
    p_a += i_b * s_ab + i_u * s_au
    p_b += i_b * s_bb + i_u * s_bu
    p_out += i_b * s_ob + i_u * s_ou + o_e * s_oe
    # Everything is asked for before the branch: behind it the compiler would have some of it wait for the rest.
    b_state = tl.load(p_state, mask=tl.where(known, mask, False), other=0, volatile=True)
    raw = _none()
    for i_t in tl.static_range(TOKENS):
        raw += (_vectors(p_q, p_k, p_v, p_a, p_b, i_t, s_qt, s_at, s_bt, h_mask, e_mask),)
    if known:
        ready, outs = _none(), _none()
        for i_t in tl.static_range(TOKENS):
            ready += (_prepared(raw[i_t], a_log, dt_bias, scale),)
        for i_t in tl.static_range(TOKENS):
            b_q, b_k, near, b_v, decay, beta = ready[i_t]
            b_state, b_out = delta_step(b_state, b_q, b_k, near, b_v, decay, beta)
            tl.store(p_kept + i_t * s_st, b_state, mask=mask, cache_modifier=".cs")
            outs += (b_out,)
        for i_t in tl.static_range(TOKENS):
            tl.store(p_out + i_t * s_ot, outs[i_t].to(p_out.dtype.element_ty), mask=e_mask)
    else:
        b_zero = tl.zeros([BLOCK_E], dtype=p_out.dtype.element_ty)
        for i_t in tl.static_range(TOKENS):
            tl.store(p_out + i_t * s_ot, b_zero, mask=e_mask)


def takes_ahead(qkv: Tensor, ssm: Tensor) -> bool:
    """Return whether the rows of a verify are floats, few and short."""
    few = qkv.shape[1] <= _MOST_TOKENS and math.prod(_grid(qkv, ssm)) <= _MOST_PROGRAMS
    return few and ssm.is_floating_point()


def run_ahead(tensors: tuple[Tensor, ...], strides: list[int]) -> None:
    """Launch one program a row, value head and block of columns, over the arguments of gdn_verify."""
    states, qkv, ssm = tensors[1], tensors[2], tensors[7]
    size, _, k_width, v_width = ssm.shape
    block_h, block_e = power_of_two(k_width), _columns(ssm)
    _ahead_kernel[_grid(qkv, ssm)](
        *tensors, size, k_width**-0.5, *strides,
        PACKED=is_packed(ssm, states), EVEN=k_width == block_h and v_width % block_e == 0,
        **constants(ssm, inner_sizes(ssm, qkv.shape[2])), TOKENS=qkv.shape[1], BLOCK_H=block_h, BLOCK_E=block_e,
        num_warps=1, **dependent_launch(ssm.device),
    )  # fmt: skip


def _grid(qkv: Tensor, ssm: Tensor) -> tuple[int, int, int]:
    return triton.cdiv(ssm.shape[3], _columns(ssm)), ssm.shape[1], qkv.shape[0]


def _columns(ssm: Tensor) -> int:
    return min(_BLOCK_E, power_of_two(ssm.shape[3]))
