"""Triton gated delta rule of a few tokens at once: what `replay` does to floats, as products of matrices.

Letters as in triton_delta; `T` tokens of a row, pending ones first, then new ones. Let D(t, i) be the product of the
decays of tokens i + 1 .. t, k and q be of length 1, S the state before. The state after token t is

    D(t, 0) S + sum over i <= t of D(t, i) k_i w_i^T,    w_t = beta_t (v_t - D(t, 0) S^T k_t
                                                                       - sum over i < t of D(t, i) (k_t . k_i) w_i)

so the w are M (V - D K S) with M [T,T], the inverse of a triangle, and outputs follow from them likewise. A first
kernel computes what does not depend on the state, once a row and value head: M up to factors, and the products of
outputs. The second holds a tile of the state, and has no chain of tokens left, only products. D is made by
multiplication, as token after token would: no quotient, no sum of logarithms, and a decay of 0 is one.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.triton_common import dependent_launch, power_of_two, prefetch, strides
from draftproof.kernels.triton_delta import NORM_EPS, is_packed, replayed_row, tile_offsets

MOST_TOKENS = 16
"""The tokens of a row that one chunk has room for: the least that a product of matrices takes."""
_MANY_TOKENS = 9
"""From this many tokens on a chunk is faster than token after token."""
_PATHS = ("s_slot", "s_cs", "s_cm")
# With more registers a thread one program fewer runs on a multiprocessor, and less is on its way from memory.
_BLOCK_E, _BLOCK_K, _WARPS, _REGISTERS = 64, 32, 4, 96
# Measured: with 512 programs it is faster to prefetch, with 4096 slower.
_MOST_PREFETCHING = 1024


@triton.jit
def upper(b_x):
    """Return the first 8 bits of float32 values, as bfloat16, and what is left of the values."""
    b_bits = b_x.to(tl.int32, bitcast=True)
    b_rest = b_x - (b_bits & -0x10000).to(tl.float32, bitcast=True)
    return (b_bits >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True), b_rest


@triton.jit
def add_product(b_sum, b_x, b_y):
    """Return sum + x @ y, for x in the dtype of a layer's inputs and float32 y, as exact as sums of float32 are.

    A float32 is the sum of three bfloat16, and the product of one of these with a bfloat16 is exact.
    """
    if b_x.dtype == tl.bfloat16:
        b_high, b_rest = upper(b_y)
        b_middle, b_rest = upper(b_rest)
        b_low, _ = upper(b_rest)
        return tl.dot(b_x, b_high, tl.dot(b_x, b_middle, tl.dot(b_x, b_low, b_sum)))
    else:
        return tl.dot(b_x.to(tl.float32), b_y, b_sum, input_precision="tf32x3")


@triton.jit(do_not_specialize=["size", "allocated", "tokens", *_PATHS])
def _solve_kernel(
    p_solved, p_factors, p_y, p_gated, p_cursor, p_state_slots, size, allocated, tokens, scale,
    s_yb, s_yt, s_zb, s_zt, s_zk, s_cs, s_cm, s_slot,
    GROUP: tl.constexpr, KEYS: tl.constexpr, K_WIDTH: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_T: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One row and value head a program: p_solved [B,U,2,T,T] and p_factors [B,U,3,T], as _chunk_kernel reads them."""
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    i_u, i_b = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    _, _, pending, _ = replayed_row(
        p_state_slots, p_cursor, p_state_slots, p_state_slots, i_b, size, size, allocated,
        s_slot, s_cs, s_cm, s_slot, s_slot, False,
    )  # fmt: skip
    count = tl.where(pending < 0, 0, pending + tokens)
    if count > 0:
        o_t, o_h = tl.arange(0, BLOCK_T), tl.arange(0, BLOCK_H)
        o_row, o_column = o_t[:, None], o_t[None, :]
        mask = (o_row < count) & (o_h < K_WIDTH)[None, :]
        p_q = p_y + i_b * s_yb + i_u // GROUP * K_WIDTH + o_row * s_yt + o_h[None, :]
        p_gate = p_gated + i_b * s_zb + i_u
        b_q, b_k = tl.load(p_q, mask=mask, other=0), tl.load(p_q + KEYS, mask=mask, other=0)
        b_beta = tl.load(p_gate + s_zk + o_t * s_zt, mask=o_t < count, other=0)
        b_ratio = tl.where(o_row >= o_column, 1.0, 0.0)
        b_since = tl.where(o_t < count, 1.0, 0.0)
        b_until = tl.where(o_t < pending, 1.0, 0.0)
        for i_t in tl.static_range(BLOCK_T):
            decay = tl.load(p_gate + i_t * s_zt, mask=i_t < count, other=1.0)
            b_ratio = tl.where((o_row >= i_t) & (o_column < i_t), b_ratio * decay, b_ratio)
            b_since = tl.where(o_t >= i_t, b_since * decay, b_since)
            b_until = tl.where((o_t < i_t) & (i_t < pending), b_until * decay, b_until)
        b_wide_k, b_wide_q = b_k.to(tl.float32), b_q.to(tl.float32)
        b_unit_k = tl.rsqrt(tl.sum(b_wide_k * b_wide_k, 1) + NORM_EPS)
        b_unit_q = tl.rsqrt(tl.sum(b_wide_q * b_wide_q, 1) + NORM_EPS) * scale
        b_near = tl.dot(b_k, tl.trans(b_k), input_precision="ieee") * b_unit_k[None, :] * b_ratio
        b_seen = tl.dot(b_q, tl.trans(b_k), input_precision="ieee") * b_unit_k[None, :] * b_ratio * b_unit_q[:, None]
        b_near = tl.where(o_row > o_column, b_near * b_unit_k[:, None] * b_beta[:, None], 0.0)
        b_solved = tl.where(o_row == o_column, b_beta[:, None], 0.0)
        for i_t in tl.static_range(BLOCK_T - 1):
            b_column = tl.sum(tl.where(o_column == i_t, b_near, 0.0), 1)
            b_row = tl.sum(tl.where(o_row == i_t, b_solved, 0.0), 0)
            b_solved -= b_column[:, None] * b_row[None, :]
        p_to = p_solved + (i_b * tl.num_programs(0) + i_u) * 2 * BLOCK_T * BLOCK_T + o_row * BLOCK_T + o_column
        tl.store(p_to, b_solved * (b_unit_k * b_until)[:, None])
        tl.store(p_to + BLOCK_T * BLOCK_T, tl.dot(b_seen, b_solved, input_precision="ieee"))
        p_factor = p_factors + (i_b * tl.num_programs(0) + i_u) * 3 * BLOCK_T + o_t
        tl.store(p_factor, b_since * b_unit_k)
        tl.store(p_factor + BLOCK_T, b_since * b_unit_q)
        tl.store(p_factor + 2 * BLOCK_T, b_since)


@triton.jit
def _prefetch_state(
    p_ssm, p_state_slots, i_b, i_u, size, s_slot, s_ms, s_mu, s_mh, s_me, o_h, i_e, K_WIDTH: tl.constexpr,
    V_WIDTH: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Prefetch a tile of float32 states, each sector of it, before the wait: the slot is a hint (triton_common)."""
    slot = tl.load(p_state_slots + i_b * s_slot, cache_modifier=".cg").to(tl.int64)
    o_e = i_e * BLOCK_E + tl.arange(0, BLOCK_E // 8) * 8
    p_tile = p_ssm + slot * s_ms + i_u * s_mu + o_h[:, None] * s_mh + o_e[None, :] * s_me
    prefetch(p_tile, (slot >= 0) & (slot < size) & (o_h < K_WIDTH)[:, None] & (o_e < V_WIDTH)[None, :])


@triton.jit(do_not_specialize=["size", "allocated", "tokens", *_PATHS])
def _chunk_kernel(
    p_out, p_ssm, p_y, p_solved, p_factors, p_cursor, p_state_slots, size, allocated, tokens,
    s_ob, s_ot, s_ou, s_oe, s_ms, s_mu, s_mh, s_me, s_yb, s_yt, s_cs, s_cm, s_slot,
    PACKED: tl.constexpr, GROUP: tl.constexpr, KEYS: tl.constexpr, K_WIDTH: tl.constexpr, V_WIDTH: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr,
    PREFETCH: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One row, value head and block of columns a program: fold the pending tokens, store, run the new ones."""
    i_u, i_b = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    o_h, o_t = tl.arange(0, BLOCK_H).to(tl.int64), tl.arange(0, BLOCK_T)
    if PDL:
        if PREFETCH:
            _prefetch_state(
                p_ssm, p_state_slots, i_b, i_u, size, s_slot, s_ms, s_mu, s_mh, s_me, o_h, tl.program_id(0), K_WIDTH,
                V_WIDTH, BLOCK_E,
            )  # fmt: skip
        gdc_wait()
        gdc_launch_dependents()
    slot, _, pending, _ = replayed_row(
        p_state_slots, p_cursor, p_state_slots, p_state_slots, i_b, size, size, allocated,
        s_slot, s_cs, s_cm, s_slot, s_slot, False,
    )  # fmt: skip
    o_e = tl.program_id(0).to(tl.int64) * BLOCK_E + tl.arange(0, BLOCK_E)
    o_k = tl.arange(0, BLOCK_K).to(tl.int64)
    FULL: tl.constexpr = K_WIDTH % BLOCK_K == 0 and V_WIDTH % BLOCK_E == 0
    k_mask, e_mask = tl.full([BLOCK_K], True, tl.int1), tl.full([BLOCK_E], True, tl.int1)
    if not FULL:
        e_mask = o_e < V_WIDTH
    count, first = pending + tokens, pending
    p_out += i_b * s_ob + i_u * s_ou + o_e[None, :] * s_oe
    if pending < 0:
        count, first = pending * 0 + tokens, pending * 0
        b_out = tl.zeros([BLOCK_T, BLOCK_E], dtype=tl.float32)
    else:
        # What does not wait for the state is asked for first.
        t_mask = (o_t < count)[:, None]
        i_row = i_b * tl.num_programs(1) + i_u
        p_row = p_y + i_b * s_yb + o_t[:, None] * s_yt
        b_v = tl.load(p_row + 2 * KEYS + i_u * V_WIDTH + o_e[None, :], mask=t_mask & e_mask[None, :], other=0)
        p_matrix = p_solved + i_row * 2 * BLOCK_T * BLOCK_T + o_t[:, None] * BLOCK_T + o_t[None, :]
        p_factor = p_factors + i_row * 3 * BLOCK_T + o_t
        b_write_of, b_seen_of = tl.load(p_matrix), tl.load(p_matrix + BLOCK_T * BLOCK_T)
        b_held_by, b_read_by = tl.load(p_factor), tl.load(p_factor + BLOCK_T)
        decay = tl.load(p_factors + i_row * 3 * BLOCK_T + 2 * BLOCK_T + tl.maximum(pending - 1, 0))
        p_q = p_row + i_u // GROUP * K_WIDTH + o_k[None, :]
        p_state = p_ssm + slot * s_ms + i_u * s_mu + tile_offsets(o_k, o_e, s_mh, s_me, V_WIDTH, PACKED)
        b_held = tl.zeros([BLOCK_T, BLOCK_E], dtype=tl.float32)
        b_read = tl.zeros([BLOCK_T, BLOCK_E], dtype=tl.float32)
        for i_h in tl.range(0, K_WIDTH, BLOCK_K, num_stages=3):
            if not FULL:
                k_mask = o_k < K_WIDTH - i_h
            b_state = tl.load(p_state + i_h * s_mh, mask=k_mask[:, None] & e_mask[None, :], other=0)
            b_k = tl.load(p_q + KEYS + i_h, mask=t_mask & k_mask[None, :], other=0)
            b_q = tl.load(p_q + i_h, mask=t_mask & k_mask[None, :], other=0)
            b_held = add_product(b_held, b_k, b_state)
            b_read = add_product(b_read, b_q, b_state)
        b_rest = b_v.to(tl.float32) - b_held_by[:, None] * b_held
        b_out = tl.dot(b_seen_of, b_rest, b_read_by[:, None] * b_read, input_precision="tf32x3")
        if pending > 0:
            b_write = tl.dot(b_write_of, b_rest, input_precision="tf32x3")
            for i_h in tl.range(0, K_WIDTH, BLOCK_K, num_stages=3):
                if not FULL:
                    k_mask = o_k < K_WIDTH - i_h
                b_state = tl.load(p_state + i_h * s_mh, mask=k_mask[:, None] & e_mask[None, :], other=0)
                b_k = tl.load(p_q + KEYS + i_h, mask=t_mask & k_mask[None, :], other=0)
                b_state = add_product(decay * b_state, tl.trans(b_k), b_write)
                # Loads and stores may be spread over threads differently: no store before every thread has loaded.
                tl.debug_barrier()
                tl.store(p_state + i_h * s_mh, b_state, mask=k_mask[:, None] & e_mask[None, :])
    o_w = (o_t - first)[:, None]
    o_mask = (o_w >= 0) & (o_t < count)[:, None] & e_mask[None, :]
    tl.store(p_out + o_w * s_ot, b_out.to(p_out.dtype.element_ty), mask=o_mask)


def takes_chunk(longest: int, ssm: Tensor) -> bool:
    """Return whether rows of up to `longest` tokens are run as chunks, in place of token after token."""
    return ssm.dtype != torch.int64 and _MANY_TOKENS <= longest <= MOST_TOKENS


def run_chunk(
    out: Tensor, ssm: Tensor, y: Tensor, gated: Tensor, cursor: Tensor, slots: Tensor, allocated: int
) -> None:
    """Fold and run rows of at most MOST_TOKENS tokens, behind the convolution: y [B,T,Q], decay and beta [B,T,2,U]."""
    rows, tokens, heads, v_width = out.shape
    size, k_width = ssm.shape[0], ssm.shape[2]
    keys = (y.shape[2] - heads * v_width) // 2
    solved = gated.new_empty((rows, heads, 2, MOST_TOKENS, MOST_TOKENS))
    factors = gated.new_empty((rows, heads, 3, MOST_TOKENS))
    shape = {
        "GROUP": heads * k_width // keys, "KEYS": keys, "K_WIDTH": k_width, "BLOCK_H": power_of_two(k_width, 16),
        "BLOCK_T": MOST_TOKENS, **dependent_launch(ssm.device),
    }  # fmt: skip
    sizes, paths = (size, allocated, tokens), strides(cursor, slots)
    _solve_kernel[(heads, rows)](
        solved, factors, y, gated, cursor, slots, *sizes, k_width**-0.5, *y.stride()[:2], *gated.stride()[:3], *paths,
        **shape, num_warps=1,
    )  # fmt: skip
    block = min(_BLOCK_E, power_of_two(v_width, 16))
    grid = (triton.cdiv(v_width, block), heads, rows)
    _chunk_kernel[grid](
        out, ssm, y, solved, factors, cursor, slots, *sizes, *strides(out, ssm), *y.stride()[:2], *paths,
        **shape, PACKED=is_packed(ssm), V_WIDTH=v_width, BLOCK_E=block, BLOCK_K=min(_BLOCK_K, shape["BLOCK_H"]),
        PREFETCH=math.prod(grid) <= _MOST_PREFETCHING, num_warps=_WARPS, maxnreg=_REGISTERS,
    )  # fmt: skip
