"""Triton gated delta rule from raw inputs: pending tokens are folded into a state, new ones go on from it.

Letters as in triton_delta; `S` state slots, `W` tokens a row, `A` allocated steps, `Q` channels. A first kernel
computes the convolution of pending and new tokens once, and moves the inputs to keep to the other half; the second
folds and goes on, with the state in registers throughout. One source serves replay, flush (no new tokens) and
checkpoints (the first pending ones, into another pool). Behind the convolution many tokens of floats that are no tree
go to triton_chunk.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.triton_chunk import run_chunk, takes_chunk
from draftproof.kernels.triton_common import dependent_launch, jit_for_any_size, kernel_for, power_of_two, strides
from draftproof.kernels.triton_delta import (
    CONSTANT_SIZES,
    activated,
    constants,
    delta_token,
    fold_tile,
    fold_token,
    gate,
    inner_sizes,
    is_packed,
    places_in_tree,
    replayed_row,
    row_above,
    tile_offsets,
    widened,
)

_BLOCK_D = 256
_BLOCK_T = 2
# What any probe has room in: channels and heads.
_LEAST_D, _LEAST_U = 32, 4
_INDICES = ("s_slot", "s_target", "s_step", "s_cs", "s_cm", "s_pb", "s_pw")


@triton.jit(
    do_not_specialize=["size", "kept_size", "allocated", "tokens", "width", "heads", "s_log", "s_bias", *_INDICES]
)
def _convolve_kernel(
    p_y, p_gated, p_inputs, p_moved, p_gates, p_x, p_a, p_b, p_weight, p_a_log, p_dt_bias, p_cursor, p_state_slots,
    p_targets, p_steps, p_parents, size, kept_size, allocated, tokens, width, heads,
    s_yb, s_yt, s_zb, s_zt, s_zk, s_ih, s_is, s_ip, s_id, s_vh, s_vs, s_vp, s_vd, s_gh, s_gs, s_gt, s_gk, s_gu,
    s_xb, s_xt, s_xd, s_ab, s_at, s_au, s_bb, s_bt, s_bu, s_wd, s_wc, s_log, s_bias, s_cs, s_cm,
    s_slot, s_target, s_step, s_pb, s_pw, RING: tl.constexpr, TRACK: tl.constexpr, NEW: tl.constexpr,
    TREE: tl.constexpr, TAPS: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_U: tl.constexpr,
    EVEN: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write the outputs, and the inputs that go to the other half: a program has a few tokens and a block of channels.

    The last program of a row's tokens has their gates instead of channels.
    """
    # The next kernel starts at the end of this one: programs that wait would take registers from this one's.
    if PDL:
        gdc_wait()
    start, i_b = tl.program_id(1).to(tl.int64) * BLOCK_T, tl.program_id(2).to(tl.int64)
    slot, kept, pending, half = replayed_row(
        p_state_slots, p_cursor, p_targets, p_steps, i_b, size, kept_size, allocated,
        s_slot, s_cs, s_cm, s_target, s_step, TRACK,
    )  # fmt: skip
    WINDOW: tl.constexpr = TAPS - 1
    tokens = tokens.to(tl.int64)
    count = tl.where((pending < 0) | (pending + tokens == 0), 0, pending + tokens)
    o_t = start + tl.arange(0, BLOCK_T).to(tl.int64)[:, None]
    o_w, live = o_t - pending, o_t < count
    if start < count:
        if tl.program_id(0) == tl.num_programs(0) - 1:
            o_u = tl.arange(0, BLOCK_U).to(tl.int64)[None, :]
            u_mask = live & (o_u < heads)
            a_log = widened(tl.load(p_a_log + o_u * s_log, mask=o_u < heads, other=0), RING)
            dt_bias = widened(tl.load(p_dt_bias + o_u * s_bias, mask=o_u < heads, other=0), RING)
            p_old = p_gates + half * s_gh + slot * s_gs + o_t * s_gt + o_u * s_gu
            b_a = tl.load(tl.where(o_w < 0, p_old, p_a + i_b * s_ab + o_w * s_at + o_u * s_au), mask=u_mask, other=0)
            b_b = tl.load(
                tl.where(o_w < 0, p_old + s_gk, p_b + i_b * s_bb + o_w * s_bt + o_u * s_bu), mask=u_mask, other=0
            )
            b_decay, b_beta = gate(widened(b_a, RING), widened(b_b, RING), a_log, dt_bias, RING)
            p_gate = p_gated + i_b * s_zb + o_t * s_zt + o_u
            tl.store(p_gate, b_decay, mask=u_mask)
            tl.store(p_gate + s_zk, b_beta, mask=u_mask)
            p_keep = p_gates + (1 - half) * s_gh + slot * s_gs + o_w * s_gt + o_u * s_gu
            tl.store(p_keep, b_a, mask=u_mask & (o_w >= 0))
            tl.store(p_keep + s_gk, b_b, mask=u_mask & (o_w >= 0))
        else:
            o_d = (tl.program_id(0).to(tl.int64) * BLOCK_D + tl.arange(0, BLOCK_D))[None, :]
            # Without a comparison a row is one vector to the compiler.
            d_mask, w_mask = live, tl.full([1, BLOCK_D], True, tl.int1)
            if not EVEN:
                w_mask = o_d < width
                d_mask = live & w_mask
            p_held = p_inputs + half * s_ih + slot * s_is + o_d * s_id
            p_new = p_x + i_b * s_xb + o_d * s_xd
            p_to = p_moved + (1 - half) * s_vh + kept * s_vs + o_d * s_vd
            b_sum = widened(tl.zeros([BLOCK_T, BLOCK_D], dtype=p_y.dtype.element_ty), RING)
            for tap in tl.static_range(TAPS):
                # Places count from the window before the first pending token.
                o_p = o_t + tap
                if TREE:
                    row = tl.minimum(tl.maximum(o_w, 0), tokens - 1)
                    in_tree = places_in_tree(p_parents + i_b * s_pb, row, o_t * 0 + tap, s_pw, WINDOW)
                    o_p = tl.where(o_w < 0, o_p, pending + in_tree)
                i_x = o_p - WINDOW - pending
                p_tap = p_held + o_p * s_ip
                if NEW:
                    p_tap = tl.where(i_x < 0, p_tap, p_new + i_x * s_xt)
                b_tap = tl.load(p_tap, mask=d_mask, other=0)
                b_weight = tl.load(p_weight + o_d * s_wd + tap * s_wc, mask=w_mask, other=0)
                b_sum += widened(b_tap, RING) * widened(b_weight, RING)
                # To the other half go the window behind the pending tokens, and the new inputs: each token brings its
                # own, the first new one (without any, the last pending one) the window, too.
                moves = o_w == (0 if NEW else -1)
                if NEW and tap == WINDOW:
                    moves = o_w >= 0
                if NEW or tap > 0:
                    tl.store(p_to + (tap + o_w) * s_vp, b_tap, mask=d_mask & moves)
            b_y = activated(b_sum, p_y.dtype.element_ty, RING)
            tl.store(p_y + i_b * s_yb + o_t * s_yt + o_d, b_y, mask=d_mask)


@triton.jit(do_not_specialize=["size", "kept_size", "allocated", "tokens", *CONSTANT_SIZES, *_INDICES])
def _fold_kernel(
    p_out, p_ssm, p_kept, p_y, p_gated, p_after, p_cursor, p_state_slots, p_targets, p_steps, p_parents,
    size, kept_size, allocated, tokens, group, keys, k_width, v_width, scale, s_ob, s_ot, s_ou, s_oe, s_ms, s_mu, s_mh,
    s_me, s_ks, s_ku, s_kh, s_ke, s_yb, s_yt, s_zb, s_zt, s_zk, s_fb, s_ft, s_fu, s_cs, s_cm, s_slot, s_target, s_step,
    s_pb, s_pw, RING: tl.constexpr, TRACK: tl.constexpr, TREE: tl.constexpr, PACKED: tl.constexpr, GROUP: tl.constexpr,
    KEYS: tl.constexpr, K_WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_E: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One row, value head and block of columns a program; p_after [B,W,U,H,E] holds states of a tree's rows here."""
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    if not RING:
        group, keys, k_width, v_width = GROUP, KEYS, K_WIDTH, V_WIDTH
    i_u, i_b = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    slot, kept, pending, _ = replayed_row(
        p_state_slots, p_cursor, p_targets, p_steps, i_b, size, kept_size, allocated,
        s_slot, s_cs, s_cm, s_target, s_step, TRACK,
    )  # fmt: skip
    tokens = tokens.to(tl.int64)
    o_h = tl.arange(0, BLOCK_H).to(tl.int64)
    o_e = tl.program_id(0).to(tl.int64) * BLOCK_E + tl.arange(0, BLOCK_E)
    h_mask, e_mask = o_h < k_width, o_e < v_width
    mask = h_mask[:, None] & e_mask[None, :]
    p_out += i_b * s_ob + i_u * s_ou + o_e * s_oe
    if (pending >= 0) & (pending + tokens > 0):
        p_state = p_ssm + slot * s_ms + i_u * s_mu + tile_offsets(o_h, o_e, s_mh, s_me, v_width, PACKED)
        b_state = tl.load(p_state, mask=mask, other=0)
        p_row = p_y + i_b * s_yb
        p_q = p_row + i_u // group * k_width + o_h
        p_k = p_q + keys
        p_v = p_row + 2 * keys + i_u * v_width + o_e
        p_gate = p_gated + i_b * s_zb + i_u
        last = pending + tokens - 1
        b_k = tl.load(p_k, mask=h_mask, other=0)
        b_v = tl.load(p_v, mask=e_mask, other=0)
        decay, beta = tl.load(p_gate), tl.load(p_gate + s_zk)
        for i_t in range(pending):
            # The next token's vectors do not wait for this one's state.
            i_next = tl.minimum(i_t + 1, last)
            b_k1 = tl.load(p_k + i_next * s_yt, mask=h_mask, other=0)
            b_v1 = tl.load(p_v + i_next * s_yt, mask=e_mask, other=0)
            decay1, beta1 = tl.load(p_gate + i_next * s_zt), tl.load(p_gate + i_next * s_zt + s_zk)
            b_state = fold_token(b_state, widened(b_k, RING), widened(b_v, RING), decay, beta, RING)
            b_k, b_v, decay, beta = b_k1, b_v1, decay1, beta1
        if pending > 0:
            p_kept_state = p_kept + kept * s_ks + i_u * s_ku + tile_offsets(o_h, o_e, s_kh, s_ke, v_width, PACKED)
            # Loads and stores may be spread over threads differently: no store before every thread has loaded.
            tl.debug_barrier()
            tl.store(p_kept_state, b_state, mask=mask)
        b_q = tl.load(p_q + tl.minimum(pending, last) * s_yt, mask=h_mask, other=0)
        if TREE:
            b_start = b_state
            p_states = p_after + i_b * s_fb + i_u * s_fu + o_h[:, None] * v_width + o_e[None, :]
        for i_w in range(tokens):
            i_next = tl.minimum(pending + i_w + 1, last)
            b_q1 = tl.load(p_q + i_next * s_yt, mask=h_mask, other=0)
            b_k1 = tl.load(p_k + i_next * s_yt, mask=h_mask, other=0)
            b_v1 = tl.load(p_v + i_next * s_yt, mask=e_mask, other=0)
            decay1, beta1 = tl.load(p_gate + i_next * s_zt), tl.load(p_gate + i_next * s_zt + s_zk)
            if TREE:
                above = row_above(p_parents + i_b * s_pb, i_b * 0 + i_w, s_pw)
                if above != i_w - 1:
                    # What other threads stored of these columns.
                    tl.debug_barrier()
                    above_mask = o_h < tl.where(above < 0, 0, k_width)
                    b_after = tl.load(p_states + above * s_ft, mask=above_mask[:, None] & e_mask[None, :], other=0)
                    b_state = tl.where(above < 0, b_start, b_after)
            b_state, b_out = delta_token(
                b_state, widened(b_q, RING), widened(b_k, RING), widened(b_v, RING), decay, beta, scale, RING
            )
            if TREE:
                tl.store(p_states + i_w * s_ft, b_state, mask=mask)
            tl.store(p_out + i_w * s_ot, b_out.to(p_out.dtype.element_ty), mask=e_mask)
            b_q, b_k, b_v, decay, beta = b_q1, b_k1, b_v1, decay1, beta1
    else:
        b_zero = tl.zeros([BLOCK_E], dtype=p_out.dtype.element_ty)
        for i_t in range(tokens):
            tl.store(p_out + i_t * s_ot, b_zero, mask=e_mask)


def gdn_replay(
    out: Tensor, ssm: Tensor, inputs: Tensor, gates: Tensor, x: Tensor, a: Tensor, b: Tensor, weight: Tensor,
    a_log: Tensor, dt_bias: Tensor, cursor: Tensor, state_slots: Tensor,
) -> None:  # fmt: skip
    """Launch one program a row, value head and block of columns; see the eager function."""
    model = (weight, a_log, dt_bias)
    _launch(ssm, inputs, gates, model, cursor, state_slots, fresh=(out, x, a, b))


def gdn_replay_tree(
    out: Tensor, ssm: Tensor, inputs: Tensor, gates: Tensor, x: Tensor, a: Tensor, b: Tensor, weight: Tensor,
    a_log: Tensor, dt_bias: Tensor, cursor: Tensor, state_slots: Tensor, parents: Tensor,
) -> None:  # fmt: skip
    """Launch as gdn_replay; the states of a layer's rows are held for the launch, as later rows go on from them."""
    model = (weight, a_log, dt_bias)
    _launch(ssm, inputs, gates, model, cursor, state_slots, fresh=(out, x, a, b), parents=parents)


def gdn_flush(
    ssm: Tensor, inputs: Tensor, cursor: Tensor, gates: Tensor, weight: Tensor, a_log: Tensor, dt_bias: Tensor,
    state_slots: Tensor,
) -> None:  # fmt: skip
    """Launch as gdn_replay without new rows; see the eager function."""
    _launch(ssm, inputs, gates, (weight, a_log, dt_bias), cursor, state_slots)


def gdn_checkpoint(
    checkpoint_ssm: Tensor, checkpoint_conv: Tensor, ssm: Tensor, inputs: Tensor, gates: Tensor, weight: Tensor,
    a_log: Tensor, dt_bias: Tensor, cursor: Tensor, state_slots: Tensor, checkpoint_slots: Tensor,
    checkpoint_steps: Tensor,
) -> None:  # fmt: skip
    """Launch as gdn_replay without new rows, into the checkpoints; see the eager function."""
    model, kept = (weight, a_log, dt_bias), (checkpoint_ssm, checkpoint_conv, checkpoint_slots, checkpoint_steps)
    _launch(ssm, inputs, gates, model, cursor, state_slots, kept=kept)


def _launch(
    ssm: Tensor, inputs: Tensor, gates: Tensor, model: tuple[Tensor, Tensor, Tensor], cursor: Tensor, slots: Tensor, *,
    fresh: tuple[Tensor, Tensor, Tensor, Tensor] | None = None,
    kept: tuple[Tensor, Tensor, Tensor, Tensor] | None = None, parents: Tensor | None = None,
) -> None:  # fmt: skip
    """Without fresh rows and without kept ones, whatever stands in their place is never touched."""
    rows, (size, heads, k_width, v_width), (channels, taps) = slots.shape[0], ssm.shape, model[0].shape
    if rows == 0 or ssm.numel() == 0:
        return
    out, x, a, b = fresh or (inputs, inputs, gates, gates)
    kept_ssm, moved, targets, steps = kept or (ssm, inputs, slots, slots)
    moved_strides = [0, *moved.stride()] if kept else moved.stride()
    fresh_strides = strides(out, x, a, b) if fresh else [0] * 13
    tokens = x.shape[1] if fresh else 0
    longest = gates.shape[2] + tokens
    y, gated = inputs.new_empty((rows, longest, channels)), ssm.new_empty((rows, longest, 2, heads))
    indices = (cursor, slots, targets, steps)
    ring, tracked = ssm.dtype == torch.int64, kept is not None
    block = min(_BLOCK_D, power_of_two(channels, _LEAST_D))
    sizes = (size, kept_ssm.shape[0], gates.shape[2], tokens)
    tree = parents is not None
    above, above_strides = (slots, (0, 0)) if parents is None else (parents, parents.stride())
    kernel_for(ssm, _convolve_kernel)[(triton.cdiv(channels, block) + 1, triton.cdiv(longest, _BLOCK_T), rows)](
        y, gated, inputs, moved, gates, x, a, b, *model, *indices, above, *sizes, channels, heads,
        *y.stride()[:2], *gated.stride()[:3], *inputs.stride(), *moved_strides, *gates.stride(),
        *fresh_strides[4:], *strides(*model, *indices), *above_strides,
        RING=ring, TRACK=tracked, NEW=tokens > 0, TREE=tree, TAPS=taps, BLOCK_D=block, BLOCK_T=_BLOCK_T,
        BLOCK_U=power_of_two(heads, _LEAST_U), EVEN=channels % block == 0 and not ring, num_warps=1,
        **dependent_launch(ssm.device),
    )  # fmt: skip
    if fresh and not tree and takes_chunk(longest, ssm):
        run_chunk(out, ssm, y, gated, cursor, slots, gates.shape[2])
        return
    tile, inner = fold_tile(ssm, tokens), inner_sizes(ssm, channels)
    after = ssm.new_empty((rows, tokens, heads, k_width, v_width)) if tree else ssm
    kernel_for(ssm, _fold_kernel)[(triton.cdiv(v_width, tile.block_e), heads, rows)](
        out, ssm, kept_ssm, y, gated, after, *indices, above, *sizes, *inner, k_width**-0.5,
        *fresh_strides[:4], *strides(ssm, kept_ssm), *y.stride()[:2], *gated.stride()[:3],
        *after.stride()[:3], *strides(*indices), *above_strides,
        RING=ring, TRACK=tracked, TREE=tree, PACKED=is_packed(ssm, kept_ssm), **constants(ssm, inner),
        BLOCK_H=tile.block_h, BLOCK_E=tile.block_e,
        num_warps=tile.warps, **dependent_launch(ssm.device),
    )  # fmt: skip


@jit_for_any_size
def _move_kernel(
    p_inputs, p_gates, p_cursor, p_state_slots, p_accept_index, size, allocated, window, width, heads, most,
    s_il, s_ih, s_is, s_ip, s_id, s_gl, s_gh, s_gs, s_gt, s_gk, s_gu, s_cs, s_cm, s_slot, s_ab, s_ap,
    BLOCK_D: tl.constexpr, BLOCK_U: tl.constexpr,
):  # fmt: skip
    """One row, layer and block of channels a program, place after place: what comes later lies behind what is read."""
    i_l, i_b = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    slot = tl.load(p_state_slots + i_b * s_slot).to(tl.int64)
    known = (slot >= 0) & (slot < size)
    named = tl.load(p_cursor + slot * s_cs + s_cm, mask=known, other=-1).to(tl.int64)
    known = known & (named >= 0) & (named < 2)
    o_d = tl.program_id(0).to(tl.int64) * BLOCK_D + tl.arange(0, BLOCK_D)
    o_u = tl.arange(0, BLOCK_U).to(tl.int64)
    heads = tl.where(tl.program_id(0) == 0, heads, 0)
    p_row = p_inputs + i_l * s_il + (1 - named) * s_ih + slot * s_is + window * s_ip + o_d * s_id
    p_gate = p_gates + i_l * s_gl + (1 - named) * s_gh + slot * s_gs + o_u * s_gu
    for place in range(most):
        row = tl.load(p_accept_index + i_b * s_ab + place * s_ap).to(tl.int64)
        moves = known & (row >= 0) & (row < allocated) & (row != place)
        d_mask, u_mask = o_d < tl.where(moves, width, 0), o_u < tl.where(moves, heads, 0)
        b_row = tl.load(p_row + row * s_ip, mask=d_mask, other=0)
        b_a = tl.load(p_gate + row * s_gt, mask=u_mask, other=0)
        b_b = tl.load(p_gate + row * s_gt + s_gk, mask=u_mask, other=0)
        # Loads and stores may be spread over threads differently: no store before every thread has loaded.
        tl.debug_barrier()
        tl.store(p_row + place * s_ip, b_row, mask=d_mask)
        tl.store(p_gate + place * s_gt, b_a, mask=u_mask)
        tl.store(p_gate + place * s_gt + s_gk, b_b, mask=u_mask)


def replay_move(inputs: Tensor, gates: Tensor, cursor: Tensor, state_slots: Tensor, accept_index: Tensor) -> None:
    """Launch one program a row, layer and block of channels; see the eager function."""
    (layers, _, size, places, channels), (_, _, _, allocated, _, heads) = inputs.shape, gates.shape
    rows, most = accept_index.shape
    if inputs.numel() == 0 or rows == 0:
        return
    block = min(_BLOCK_D, power_of_two(channels, _LEAST_D))
    _move_kernel[(triton.cdiv(channels, block), layers, rows)](
        inputs, gates, cursor, state_slots, accept_index, size, allocated, places - allocated, channels, heads, most,
        *strides(inputs, gates, cursor, state_slots, accept_index),
        BLOCK_D=block, BLOCK_U=power_of_two(heads, _LEAST_U), num_warps=1,
    )  # fmt: skip
