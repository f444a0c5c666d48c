"""Triton gated delta rule from raw inputs: convolution, gates and delta rule in one kernel.

Letters as in triton_delta; `S` state slots, `W` tokens a row, `A` allocated steps, `N` key heads, `D` channels.

One source folds a slot's pending tokens and goes on over new rows (replay), only folds (flush), or folds the first few
into a pool of checkpoints. The convolution is computed anew in every program that needs it, from raw inputs. Programs
read one half and write the other: the values of a head and block by the one program that has them, queries and keys by
the first that shares them, gates by a head's first block.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.triton_common import dependent_launch, power_of_two, strides
from draftproof.kernels.triton_delta import convolved, delta_token, is_packed, tile_of, tile_offsets, widened

_BLOCK_J = 8
_INDICES = ("s_slot", "s_target", "s_step", "s_cs", "s_cm", "s_log", "s_bias")


@triton.jit
def _inputs(p_held, p_new, o_p, pending, rows, s_hp, s_xt, d_mask, WINDOW: tl.constexpr):
    """Return raw inputs at places o_p, from the window on: pending ones, then new ones; zeros where not rows."""
    old = o_p < WINDOW + pending
    mask = rows[:, None] & d_mask[None, :]
    b_held = tl.load(p_held + o_p[:, None] * s_hp, mask=mask & old[:, None], other=0)
    b_new = tl.load(
        p_new + (o_p - WINDOW - pending)[:, None] * s_xt, mask=mask & (o_p >= WINDOW + pending)[:, None], other=0
    )
    return tl.where(old[:, None], b_held, b_new)


@triton.jit
def _gate(p_held, p_new, i_t, pending, s_gt, s_at):
    """Return one raw gate of token i_t."""
    held = tl.load(p_held + i_t * s_gt, mask=i_t < pending, other=0)
    new = tl.load(p_new + (i_t - pending) * s_at, mask=i_t >= pending, other=0)
    return tl.where(i_t < pending, held, new)


@triton.jit
def _move(p_from, p_new, p_to, pending, count, s_hp, s_xt, s_tp, d_mask, WINDOW: tl.constexpr, BLOCK_J: tl.constexpr):
    """Copy the window after the pending tokens, and the new inputs, to places 0 .. count - 1."""
    for start in range(0, count, BLOCK_J):
        o_j = start + tl.arange(0, BLOCK_J).to(tl.int64)
        rows = o_j < count
        b_raw = _inputs(p_from, p_new, pending + o_j, pending, rows, s_hp, s_xt, d_mask, WINDOW)
        tl.store(p_to + o_j[:, None] * s_tp, b_raw, mask=rows[:, None] & d_mask[None, :])


@triton.jit(do_not_specialize=["size", "kept_size", "allocated", "tokens", *_INDICES])
def _replay_kernel(
    p_out, p_ssm, p_kept, p_inputs, p_moved, p_gates, p_x, p_a, p_b, p_weight, p_a_log, p_dt_bias, p_cursor,
    p_slots, p_targets, p_steps, size, kept_size, allocated, tokens, scale,
    s_ob, s_ot, s_ou, s_oe, s_ms, s_mu, s_mh, s_me, s_ks, s_ku, s_kh, s_ke, s_ih, s_is, s_ip, s_id,
    s_vh, s_vs, s_vp, s_vd, s_gh, s_gs, s_gt, s_gk, s_gu, s_xb, s_xt, s_xd, s_ab, s_at, s_au, s_bb, s_bt, s_bu,
    s_wd, s_wc, s_log, s_bias, s_cs, s_cm, s_slot, s_target, s_step,
    RING: tl.constexpr, TRACK: tl.constexpr, PACKED: tl.constexpr, TAPS: tl.constexpr, GROUP: tl.constexpr,
    KEYS: tl.constexpr, K_WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_J: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    i_e, i_u, i_b = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    tokens = tokens.to(tl.int64)
    slot = tl.load(p_slots + i_b * s_slot).to(tl.int64)
    known = (slot >= 0) & (slot < size)
    pending = tl.load(p_cursor + slot * s_cs, mask=known, other=-1).to(tl.int64)
    half = tl.load(p_cursor + slot * s_cs + s_cm, mask=known, other=-1).to(tl.int64)
    known = known & (pending >= 0) & (pending <= allocated) & (half >= 0) & (half < 2)
    kept = slot
    if TRACK:
        kept = tl.load(p_targets + i_b * s_target).to(tl.int64)
        step = tl.load(p_steps + i_b * s_step).to(tl.int64)
        known = known & (kept >= 0) & (kept < kept_size) & (step >= 0) & (step < pending)
        pending = step + 1
    WINDOW: tl.constexpr = TAPS - 1
    o_c = tl.arange(0, BLOCK_C).to(tl.int64)
    o_h = tl.arange(0, BLOCK_H).to(tl.int64)
    o_e = i_e.to(tl.int64) * BLOCK_E + tl.arange(0, BLOCK_E)
    h_mask, e_mask = o_h < K_WIDTH, o_e < V_WIDTH
    mask = h_mask[:, None] & e_mask[None, :]
    p_out += i_b * s_ob + i_u * s_ou + o_e * s_oe
    count = pending + tokens
    if known & (count > 0):
        b_state = tl.load(
            p_ssm + slot * s_ms + i_u * s_mu + tile_offsets(o_h, o_e, s_mh, s_me, V_WIDTH, PACKED), mask=mask, other=0
        )
        p_kept_state = p_kept + kept * s_ks + i_u * s_ku + tile_offsets(o_h, o_e, s_kh, s_ke, V_WIDTH, PACKED)
        o_q = i_u // GROUP * K_WIDTH + o_h
        o_v = 2 * KEYS + i_u * V_WIDTH + o_e
        p_held = p_inputs + half * s_ih + slot * s_is
        p_new = p_x + i_b * s_xb
        p_q, p_q_new = p_held + (o_q * s_id)[None, :], p_new + (o_q * s_xd)[None, :]
        p_k, p_k_new = p_q + KEYS * s_id, p_q_new + KEYS * s_xd
        p_v, p_v_new = p_held + (o_v * s_id)[None, :], p_new + (o_v * s_xd)[None, :]
        p_a_held = p_gates + half * s_gh + slot * s_gs + i_u * s_gu
        p_b_held = p_a_held + s_gk
        p_a_new = p_a + i_b * s_ab + i_u * s_au
        p_b_new = p_b + i_b * s_bb + i_u * s_bu

        taps = o_c < TAPS
        p_w = p_weight + o_c[:, None] * s_wc
        b_wq = tl.load(p_w + (o_q * s_wd)[None, :], mask=taps[:, None] & h_mask[None, :], other=0)
        b_wk = tl.load(p_w + ((o_q + KEYS) * s_wd)[None, :], mask=taps[:, None] & h_mask[None, :], other=0)
        b_wv = tl.load(p_w + (o_v * s_wd)[None, :], mask=taps[:, None] & e_mask[None, :], other=0)
        a_log = widened(tl.load(p_a_log + i_u * s_log), RING)
        dt_bias = widened(tl.load(p_dt_bias + i_u * s_bias), RING)

        moved = WINDOW + tokens
        p_to = p_moved + (1 - half) * s_vh + kept * s_vs
        _move(p_v, p_v_new, p_to + (o_v * s_vd)[None, :], pending, moved, s_ip, s_xt, s_vp, e_mask, WINDOW, BLOCK_J)
        if (i_e == 0) & (i_u % GROUP == 0):
            p_q_to = p_to + (o_q * s_vd)[None, :]
            p_k_to = p_q_to + KEYS * s_vd
            _move(p_q, p_q_new, p_q_to, pending, moved, s_ip, s_xt, s_vp, h_mask, WINDOW, BLOCK_J)
            _move(p_k, p_k_new, p_k_to, pending, moved, s_ip, s_xt, s_vp, h_mask, WINDOW, BLOCK_J)

        p_g = p_gates + (1 - half) * s_gh + slot * s_gs + i_u * s_gu
        b_q = convolved(_inputs(p_q, p_q_new, o_c, pending, taps, s_ip, s_xt, h_mask, WINDOW), b_wq, RING)
        b_k = convolved(_inputs(p_k, p_k_new, o_c, pending, taps, s_ip, s_xt, h_mask, WINDOW), b_wk, RING)
        b_v = convolved(_inputs(p_v, p_v_new, o_c, pending, taps, s_ip, s_xt, e_mask, WINDOW), b_wv, RING)
        a = _gate(p_a_held, p_a_new, 0, pending, s_gt, s_at)
        b = _gate(p_b_held, p_b_new, 0, pending, s_gt, s_bt)
        for i_t in range(count):
            # The next token's vectors do not wait for this one's state.
            i_next = tl.minimum(i_t + 1, count - 1)
            b_q1 = _inputs(p_q, p_q_new, i_next + o_c, pending, taps, s_ip, s_xt, h_mask, WINDOW)
            b_q1 = convolved(b_q1, b_wq, RING)
            b_k1 = _inputs(p_k, p_k_new, i_next + o_c, pending, taps, s_ip, s_xt, h_mask, WINDOW)
            b_k1 = convolved(b_k1, b_wk, RING)
            b_v1 = _inputs(p_v, p_v_new, i_next + o_c, pending, taps, s_ip, s_xt, e_mask, WINDOW)
            b_v1 = convolved(b_v1, b_wv, RING)
            a1 = _gate(p_a_held, p_a_new, i_next, pending, s_gt, s_at)
            b1 = _gate(p_b_held, p_b_new, i_next, pending, s_gt, s_bt)
            a_wide, b_wide = widened(a, RING), widened(b, RING)
            b_state, b_out = delta_token(b_state, b_q, b_k, b_v, a_wide, b_wide, a_log, dt_bias, scale, RING)
            if i_t + 1 == pending:
                # Loads and stores may be spread over threads differently: no store before every thread has loaded.
                tl.debug_barrier()
                tl.store(p_kept_state, b_state, mask=mask)
            elif i_t >= pending:
                i_w = i_t - pending
                tl.store(p_out + i_w * s_ot, b_out.to(p_out.dtype.element_ty), mask=e_mask)
                tl.store(p_g + i_w * s_gt, a, mask=i_e == 0)
                tl.store(p_g + i_w * s_gt + s_gk, b, mask=i_e == 0)
            b_q, b_k, b_v, a, b = b_q1, b_k1, b_v1, a1, b1
    else:
        b_zero = tl.zeros([BLOCK_E], dtype=p_out.dtype.element_ty)
        for i_t in range(tokens):
            tl.store(p_out + i_t * s_ot, b_zero, mask=e_mask)


def gdn_replay(
    out: torch.Tensor,
    ssm: torch.Tensor,
    inputs: torch.Tensor,
    gates: torch.Tensor,
    x: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    weight: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    cursor: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Launch one program a row, value head and block of columns; see the eager function."""
    model = (weight, a_log, dt_bias)
    _launch(ssm, inputs, gates, model, cursor, slots, fresh=(out, x, a, b))


def gdn_flush(
    ssm: torch.Tensor,
    inputs: torch.Tensor,
    cursor: torch.Tensor,
    gates: torch.Tensor,
    weight: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Launch as gdn_replay without new rows; see the eager function."""
    _launch(ssm, inputs, gates, (weight, a_log, dt_bias), cursor, slots)


def gdn_checkpoint(
    track_ssm: torch.Tensor,
    track_conv: torch.Tensor,
    ssm: torch.Tensor,
    inputs: torch.Tensor,
    gates: torch.Tensor,
    weight: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    cursor: torch.Tensor,
    slots: torch.Tensor,
    track_slots: torch.Tensor,
    steps: torch.Tensor,
) -> None:
    """Launch as gdn_replay without new rows, into the checkpoints; see the eager function."""
    model, kept = (weight, a_log, dt_bias), (track_ssm, track_conv, track_slots, steps)
    _launch(ssm, inputs, gates, model, cursor, slots, kept=kept)


def _launch(
    ssm: torch.Tensor,
    inputs: torch.Tensor,
    gates: torch.Tensor,
    model: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    cursor: torch.Tensor,
    slots: torch.Tensor,
    *,
    fresh: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
    kept: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
) -> None:
    """Without fresh rows and without kept ones, whatever stands in their place is never touched."""
    rows, (size, heads, k_width, v_width), (channels, taps) = slots.shape[0], ssm.shape, model[0].shape
    if rows == 0 or ssm.numel() == 0:
        return
    keys, tile = (channels - heads * v_width) // 2, tile_of(rows, ssm)
    out, x, a, b = fresh or (inputs, inputs, gates, gates)
    kept_ssm, moved, targets, steps = kept or (ssm, inputs, slots, slots)
    moved_strides = [0, *moved.stride()] if kept else moved.stride()
    fresh_strides = strides(out, x, a, b) if fresh else [0] * 13
    _replay_kernel[(triton.cdiv(v_width, tile.block_e), heads, rows)](
        out, ssm, kept_ssm, inputs, moved, gates, x, a, b, *model, cursor, slots, targets, steps,
        size, kept_ssm.shape[0], gates.shape[2], x.shape[1] if fresh else 0, k_width**-0.5,
        *fresh_strides[:4], *strides(ssm, kept_ssm, inputs), *moved_strides, *gates.stride(), *fresh_strides[4:],
        *strides(*model, cursor, slots, targets, steps),
        RING=ssm.dtype == torch.int64, TRACK=kept is not None, PACKED=is_packed(ssm, kept_ssm), TAPS=taps,
        GROUP=heads * k_width // keys, KEYS=keys, K_WIDTH=k_width, V_WIDTH=v_width,
        BLOCK_C=power_of_two(taps), BLOCK_H=tile.block_h, BLOCK_E=tile.block_e, BLOCK_J=_BLOCK_J,
        num_warps=tile.warps, **dependent_launch(ssm.device),
    )  # fmt: skip
