"""Triton gated delta rule from states: verify rows with a snapshot of every state, packed sequences, gated norm.

Letters as in triton_delta; `S` state slots, `W` tokens a row, `T` packed tokens, `R` sequences, `A` allocated steps,
`N` key heads, `Q` channels. One source serves rows of fixed width, which leave their base state and
write every state after it, and packed sequences, which move their state on in place and may write one state besides.

A token's vectors are asked for a token ahead, so that they are there when the state is. At a model's sizes the time
goes into writing states. Verify rows that are few and short go to triton_ahead.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.triton_ahead import run_ahead, takes_ahead
from draftproof.kernels.triton_common import dependent_launch, kernel_for, mix, power_of_two, strides
from draftproof.kernels.triton_delta import (
    CONSTANT_SIZES,
    constants,
    delta_token,
    fold_tile,
    gate,
    inner_sizes,
    is_packed,
    row_above,
    tile_of,
    tile_offsets,
    widened,
)

_NORM_ELEMENTS = 1024
# Columns that any probe has room in.
_LEAST_E = 8


@triton.jit
def _token(p_q, p_k, p_v, p_a, p_b, i_t, s_qt, s_at, s_bt, h_mask, e_mask, RING: tl.constexpr):
    """Return the vectors and raw gates of token i_t."""
    b_q = tl.load(p_q + i_t * s_qt, mask=h_mask, other=0)
    b_k = tl.load(p_k + i_t * s_qt, mask=h_mask, other=0)
    b_v = tl.load(p_v + i_t * s_qt, mask=e_mask, other=0)
    a = tl.load(p_a + i_t * s_at)
    b = tl.load(p_b + i_t * s_bt)
    return widened(b_q, RING), widened(b_k, RING), widened(b_v, RING), widened(a, RING), widened(b, RING)


@triton.jit(
    do_not_specialize=[
        *("size", "kept_size", "tokens", *CONSTANT_SIZES),
        *("s_log", "s_bias", "s_slot", "s_start", "s_target", "s_step", "s_pb", "s_pt"),
    ]
)
def _delta_kernel(
    p_out, p_kept, p_qkv, p_a, p_b, p_a_log, p_dt_bias, p_ssm, p_state_slots, p_cu_seqlens, p_targets, p_steps,
    p_parents,
    size, kept_size, tokens, group, keys, k_width, v_width, scale,
    s_ob, s_ot, s_ou, s_oe, s_sb, s_st, s_su, s_sh, s_se, s_qb, s_qt, s_qd, s_ab, s_at, s_au, s_bb, s_bt, s_bu,
    s_log, s_bias, s_ms, s_mu, s_mh, s_me, s_slot, s_start, s_target, s_step, s_pb, s_pt,
    RING: tl.constexpr, SNAPSHOT: tl.constexpr, TREE: tl.constexpr, PACKED: tl.constexpr, GROUP: tl.constexpr,
    KEYS: tl.constexpr, K_WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_E: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Run the delta rule: a program has one row, one value head and one block of columns.

    Shapes as in gdn_verify (SNAPSHOT: p_kept are its states; TREE: p_parents [B,W-1] as in gdn_verify_tree), or as in
    gdn_update (p_kept are the checkpoints [S,U,H,E], in slots p_targets [R] after tokens p_steps [R]).
    """
    if not RING:
        group, keys, k_width, v_width = GROUP, KEYS, K_WIDTH, V_WIDTH
    i_u, i_b = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    o_h = tl.arange(0, BLOCK_H).to(tl.int64)
    # Model weights, which may be read before the wait.
    a_log = widened(tl.load(p_a_log + i_u * s_log), RING)
    dt_bias = widened(tl.load(p_dt_bias + i_u * s_bias), RING)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    slot = tl.load(p_state_slots + i_b * s_slot).to(tl.int64)
    if SNAPSHOT:
        first, count, kept, step = i_b * 0, tokens.to(tl.int64), i_b, i_b * 0
    else:
        first = tl.load(p_cu_seqlens + i_b * s_start).to(tl.int64)
        count = tl.load(p_cu_seqlens + (i_b + 1) * s_start).to(tl.int64) - first
        kept = tl.load(p_targets + i_b * s_target).to(tl.int64)
        step = tl.load(p_steps + i_b * s_step).to(tl.int64)
        step = tl.where((kept >= 0) & (kept < kept_size), step, -1)
    o_e = tl.program_id(0).to(tl.int64) * BLOCK_E + tl.arange(0, BLOCK_E)
    h_mask, e_mask = o_h < k_width, o_e < v_width
    mask = h_mask[:, None] & e_mask[None, :]
    p_out += i_b * s_ob + first * s_ot + i_u * s_ou + o_e * s_oe
    if (slot >= 0) & (slot < size) & (count > 0):
        p_state = p_ssm + slot * s_ms + i_u * s_mu + tile_offsets(o_h, o_e, s_mh, s_me, v_width, PACKED)
        b_state = tl.load(p_state, mask=mask, other=0)
        p_kept_state = p_kept + kept * s_sb + i_u * s_su + tile_offsets(o_h, o_e, s_sh, s_se, v_width, PACKED)
        p_row = p_qkv + i_b * s_qb + first * s_qt
        p_q = p_row + (i_u // group * k_width + o_h) * s_qd
        p_k = p_q + keys * s_qd
        p_v = p_row + (2 * keys + i_u * v_width + o_e) * s_qd
        p_row_a = p_a + i_b * s_ab + first * s_at + i_u * s_au
        p_row_b = p_b + i_b * s_bb + first * s_bt + i_u * s_bu
        b_q, b_k, b_v, a, b = _token(p_q, p_k, p_v, p_row_a, p_row_b, 0, s_qt, s_at, s_bt, h_mask, e_mask, RING)
        for i_t in range(count):
            i_next = tl.minimum(i_t + 1, count - 1)
            b_q1, b_k1, b_v1, a1, b1 = _token(
                p_q, p_k, p_v, p_row_a, p_row_b, i_next, s_qt, s_at, s_bt, h_mask, e_mask, RING
            )
            decay, beta = gate(a, b, a_log, dt_bias, RING)
            if TREE:
                above = row_above(p_parents + i_b * s_pb, i_b * 0 + i_t, s_pt)
                if above != i_t - 1:
                    # What other threads stored of these columns: the state after the parent, or the committed one.
                    tl.debug_barrier()
                    first_mask = o_h < tl.where(above < 0, k_width, 0)
                    later_mask = o_h < tl.where(above < 0, 0, k_width)
                    b_start = tl.load(p_state, mask=first_mask[:, None] & e_mask[None, :], other=0)
                    b_after = tl.load(p_kept_state + above * s_st, mask=later_mask[:, None] & e_mask[None, :], other=0)
                    b_state = tl.where(above < 0, b_start, b_after)
            b_state, b_out = delta_token(b_state, b_q, b_k, b_v, decay, beta, scale, RING)
            tl.store(p_out + i_t * s_ot, b_out.to(p_out.dtype.element_ty), mask=e_mask)
            if SNAPSHOT:
                tl.store(p_kept_state + i_t * s_st, b_state, mask=mask, cache_modifier=".cs")
            elif i_t == step:
                tl.store(p_kept_state, b_state, mask=mask)
            b_q, b_k, b_v, a, b = b_q1, b_k1, b_v1, a1, b1
        if not SNAPSHOT:
            # Loads and stores may be spread over threads differently: no store before every thread has loaded.
            tl.debug_barrier()
            tl.store(p_state, b_state, mask=mask)
    else:
        b_zero = tl.zeros([BLOCK_E], dtype=p_out.dtype.element_ty)
        for i_t in range(count):
            tl.store(p_out + i_t * s_ot, b_zero, mask=e_mask)


def gdn_verify(
    out: Tensor, states: Tensor, qkv: Tensor, a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor, ssm: Tensor,
    state_slots: Tensor,
) -> None:  # fmt: skip
    """Launch one program a row, value head and block of columns; see the eager function."""
    _verify((out, states, qkv, a, b, a_log, dt_bias, ssm, state_slots), None)


def gdn_verify_tree(
    out: Tensor, states: Tensor, qkv: Tensor, a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor, ssm: Tensor,
    state_slots: Tensor, parents: Tensor,
) -> None:  # fmt: skip
    """Launch as gdn_verify; a row whose parent is not the row before it loads the state that the parent stored."""
    _verify((out, states, qkv, a, b, a_log, dt_bias, ssm, state_slots), parents)


def _verify(tensors: tuple[Tensor, ...], parents: Tensor | None) -> None:
    """Launch over the arguments of gdn_verify, and `parents` for a tree."""
    qkv, state_slots = tensors[2], tensors[-1]
    if tensors[0].numel() == 0:
        return
    if parents is None and takes_ahead(qkv, tensors[7]):
        run_ahead(tensors, strides(*tensors))
        return
    every = [*strides(*tensors), 0, 0, 0, *((0, 0) if parents is None else parents.stride())]
    pointers = (*tensors, *[state_slots] * 3, state_slots if parents is None else parents)
    _launch(pointers, state_slots.shape[0], qkv.shape[1], every, snapshot=True, tree=parents is not None)


def gdn_update(
    out: Tensor, ssm: Tensor, checkpoint_ssm: Tensor, qkv: Tensor, a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor,
    state_slots: Tensor, cu_seqlens: Tensor, checkpoint_slots: Tensor, checkpoint_steps: Tensor,
) -> None:  # fmt: skip
    """Launch one program a sequence, value head and block of columns; see the eager function."""
    if out.numel() == 0 or state_slots.shape[0] == 0:
        return
    # Packed sequences have no row stride, and one kept state to a slot has no step stride.
    sequences = (state_slots, cu_seqlens, checkpoint_slots, checkpoint_steps)
    every = [
        0, *out.stride(), checkpoint_ssm.stride(0), 0, *checkpoint_ssm.stride()[1:], 0, *qkv.stride(),
        0, *a.stride(), 0, *strides(b, a_log, dt_bias, ssm, *sequences), 0, 0,
    ]  # fmt: skip
    pointers = (out, checkpoint_ssm, qkv, a, b, a_log, dt_bias, ssm, *sequences, state_slots)
    _launch(pointers, state_slots.shape[0], 0, every, snapshot=False)


def _launch(
    pointers: tuple[Tensor, ...], rows: int, tokens: int, every: list[int], *, snapshot: bool, tree: bool = False
) -> None:
    """`tokens` a row where all rows have as many."""
    kept, qkv, ssm = pointers[1], pointers[2], pointers[7]
    size, heads, k_width, v_width = ssm.shape
    average, inner, ring = qkv.shape[0] / rows, inner_sizes(ssm, qkv.shape[-1]), ssm.dtype == torch.int64
    tile = tile_of(rows, ssm) if snapshot or average <= 2 else fold_tile(ssm, average)
    kernel_for(ssm, _delta_kernel)[(triton.cdiv(v_width, tile.block_e), heads, rows)](
        *pointers, size, kept.shape[0], tokens, *inner, k_width**-0.5, *every,
        RING=ring, SNAPSHOT=snapshot, TREE=tree, PACKED=is_packed(ssm, kept), **constants(ssm, inner),
        BLOCK_H=tile.block_h, BLOCK_E=tile.block_e, num_warps=tile.warps, **dependent_launch(ssm.device),
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows", "s_w"])
def _gated_norm_kernel(
    p_out, p_x, p_z, p_weight, rows, width, eps, s_om, s_oe, s_xm, s_xe, s_zm, s_ze, s_w,
    RING: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_E: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """BLOCK_M rows a program: out, x and z [T,E], weight [E]."""
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    o_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    o_e = tl.arange(0, BLOCK_E).to(tl.int64)
    mask = (o_m < rows) & (o_e < width)[None, :]
    b_weight = widened(tl.load(p_weight + o_e * s_w, mask=o_e < width, other=0), RING)[None, :]
    b_x = widened(tl.load(p_x + o_m * s_xm + o_e[None, :] * s_xe, mask=mask, other=0), RING)
    b_z = widened(tl.load(p_z + o_m * s_zm + o_e[None, :] * s_ze, mask=mask, other=0), RING)
    if RING:
        b_out = mix(b_weight * b_x + b_z)
    else:
        b_scale = tl.rsqrt(tl.sum(b_x * b_x, 1) / width + eps)[:, None]
        b_out = b_x * b_scale * b_weight * (b_z / (1.0 + tl.exp(-b_z)))
    tl.store(p_out + o_m * s_om + o_e[None, :] * s_oe, b_out.to(p_out.dtype.element_ty), mask=mask)


def gated_norm(out: Tensor, x: Tensor, z: Tensor, weight: Tensor, eps: float) -> None:
    """Launch one program a block of rows; see the eager function."""
    if out.numel() == 0:
        return
    (rows, width), ring = out.shape, out.dtype == torch.int64
    columns = power_of_two(width, _LEAST_E)
    block = max(1, _NORM_ELEMENTS // columns)
    kernel_for(out, _gated_norm_kernel)[(triton.cdiv(rows, block),)](
        out, x, z, weight, rows, width, eps, *strides(out, x, z, weight),
        RING=ring, BLOCK_M=block, BLOCK_E=columns, **dependent_launch(out.device),
    )  # fmt: skip
