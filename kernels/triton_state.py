"""Triton convolutions with their windows, and moves of linear attention states.

`S` state slots, `B` rows of a launch, `W` tokens a row, `T` packed tokens, `R` sequences, `A` allocated steps, `L`
layers, `C` conv width, `Q` channels. A window holds the last C - 1 inputs of the convolution, oldest first.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.triton_common import dependent_launch, jit_for_any_size, kernel_for, power_of_two, strides
from draftproof.kernels.triton_delta import convolved, places_in_tree

# One warp; its threads hold all taps of their channels: the sum over taps stays within a thread.
_BLOCK_D = 256
# What any probe has room in: channels, taps, rows, elements of a state.
_LEAST_D, _LEAST_C, LEAST_B, _LEAST_COPY = 32, 4, 32, 128
_RUNS = 64
_BLOCK_COPY = 4096
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@triton.jit
def _inputs_before(p_window, p_x, o_p, rows, s_cp, s_xt, d_mask, WINDOW: tl.constexpr):
    """Return inputs at places o_p, counted from the window on: the window, then tokens; zeros where not rows."""
    old = o_p < WINDOW
    mask = rows[:, None] & d_mask[None, :]
    b_held = tl.load(p_window + o_p[:, None] * s_cp, mask=mask & old[:, None], other=0)
    b_new = tl.load(p_x + (o_p - WINDOW)[:, None] * s_xt, mask=mask & (o_p >= WINDOW)[:, None], other=0)
    return tl.where(old[:, None], b_held, b_new)


@triton.jit(do_not_specialize=["size", "s_slot", "s_pb", "s_pt"])
def _conv_verify_kernel(
    p_out, p_windows, p_x, p_conv, p_weight, p_state_slots, p_parents, size, width,
    s_ob, s_ot, s_od, s_wb, s_wt, s_wp, s_wd, s_xb, s_xt, s_xd, s_cs, s_cp, s_cd, s_gd, s_gc, s_slot, s_pb, s_pt,
    RING: tl.constexpr, TREE: tl.constexpr, TAPS: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_D: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One token and block of channels a program: the taps of a token are its output's inputs and its window."""
    if PDL:
        gdc_launch_dependents()
    i_t, i_b = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    o_c = tl.arange(0, BLOCK_C).to(tl.int64)
    o_d = tl.program_id(0).to(tl.int64) * BLOCK_D + tl.arange(0, BLOCK_D)
    d_mask = o_d < width
    p_weight += o_c[:, None] * s_gc + o_d[None, :] * s_gd
    b_weight = tl.load(p_weight, mask=(o_c < TAPS)[:, None] & d_mask[None, :], other=0)
    if PDL:
        gdc_wait()
    slot = tl.load(p_state_slots + i_b * s_slot).to(tl.int64)
    taps = o_c < tl.where((slot >= 0) & (slot < size), TAPS, 0)
    p_held = p_conv + slot * s_cs + o_d[None, :] * s_cd
    p_new = p_x + i_b * s_xb + o_d[None, :] * s_xd
    o_p = i_t + o_c
    if TREE:
        o_p = places_in_tree(p_parents + i_b * s_pb, i_t, o_c, s_pt, TAPS - 1)
    b_taps = _inputs_before(p_held, p_new, o_p, taps, s_cp, s_xt, d_mask, TAPS - 1)
    p_window = p_windows + i_b * s_wb + i_t * s_wt + (o_c - 1)[:, None] * s_wp + o_d[None, :] * s_wd
    tl.store(p_window, b_taps, mask=(taps & (o_c > 0))[:, None] & d_mask[None, :])
    # The activation of nothing is zero, in floats and in the ring: so is the output of a slot that does not exist.
    b_out = convolved(b_taps, b_weight, RING)
    tl.store(p_out + i_b * s_ob + i_t * s_ot + o_d * s_od, b_out.to(p_out.dtype.element_ty), mask=d_mask)


def conv_verify(out: Tensor, windows: Tensor, x: Tensor, conv: Tensor, weight: Tensor, state_slots: Tensor) -> None:
    """Launch one program a token and block of channels; see the eager function."""
    _verify((out, windows, x, conv, weight, state_slots), None)


def conv_verify_tree(
    out: Tensor, windows: Tensor, x: Tensor, conv: Tensor, weight: Tensor, state_slots: Tensor, parents: Tensor
) -> None:
    """Launch as conv_verify; each program walks from its token to the nearest ancestors."""
    _verify((out, windows, x, conv, weight, state_slots), parents)


def _verify(tensors: tuple[Tensor, ...], parents: Tensor | None) -> None:
    """Launch over the arguments of conv_verify, and `parents` for a tree."""
    _, _, x, conv, weight, state_slots = tensors
    if x.numel() == 0:
        return
    rows, tokens, width = x.shape
    ring, taps, block = x.dtype == torch.int64, weight.shape[1], min(_BLOCK_D, power_of_two(width, _LEAST_D))
    kernel_for(x, _conv_verify_kernel)[(triton.cdiv(width, block), tokens, rows)](
        *tensors, state_slots if parents is None else parents, conv.shape[0], width,
        *strides(*tensors), *((0, 0) if parents is None else parents.stride()),
        RING=ring, TREE=parents is not None, TAPS=taps, BLOCK_C=power_of_two(taps, _LEAST_C), BLOCK_D=block,
        num_warps=1, **dependent_launch(x.device),
    )  # fmt: skip


@triton.jit(do_not_specialize=["size", "kept_size", "s_slot", "s_start", "s_target", "s_step"])
def _conv_update_kernel(
    p_out, p_conv, p_checkpoint, p_x, p_weight, p_state_slots, p_cu_seqlens, p_targets, p_steps, size, kept_size, width,
    s_ot, s_od, s_cs, s_cp, s_cd, s_ks, s_kp, s_kd, s_xt, s_xd, s_gd, s_gc, s_slot, s_start, s_target, s_step,
    RING: tl.constexpr, TAPS: tl.constexpr, RUN: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_D: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Convolve a run of tokens of one sequence: a program has RUN >= C - 1 tokens and one block of channels.

    Only the first run of a sequence reads the old window.
    """
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    i_j, i_r = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    slot = tl.load(p_state_slots + i_r * s_slot).to(tl.int64)
    first = tl.load(p_cu_seqlens + i_r * s_start).to(tl.int64)
    count = tl.load(p_cu_seqlens + (i_r + 1) * s_start).to(tl.int64) - first
    known = (slot >= 0) & (slot < size)
    o_c = tl.arange(0, BLOCK_C).to(tl.int64)
    o_d = tl.program_id(0).to(tl.int64) * BLOCK_D + tl.arange(0, BLOCK_D)
    taps, d_mask = o_c < tl.where(known, TAPS, 0), o_d < width
    b_weight = tl.load(
        p_weight + o_c[:, None] * s_gc + o_d[None, :] * s_gd, mask=taps[:, None] & d_mask[None, :], other=0
    )
    p_held = p_conv + slot * s_cs + o_d[None, :] * s_cd
    p_new = p_x + first * s_xt + o_d[None, :] * s_xd
    p_out += first * s_ot + o_d * s_od
    for start in range(i_j * RUN, count, tl.num_programs(1) * RUN):
        for i_t in range(start, tl.minimum(start + RUN, count)):
            b_taps = _inputs_before(p_held, p_new, i_t + o_c, taps, s_cp, s_xt, d_mask, TAPS - 1)
            b_out = convolved(b_taps, b_weight, RING)
            tl.store(p_out + i_t * s_ot, b_out.to(p_out.dtype.element_ty), mask=d_mask)
    if i_j == 0:
        # The window is the last C - 1 of what it and the tokens hold together.
        target = tl.load(p_targets + i_r * s_target).to(tl.int64)
        step = tl.load(p_steps + i_r * s_step).to(tl.int64)
        tracked = known & (target >= 0) & (target < kept_size) & (step >= 0) & (step < count)
        tracked = o_c < tl.where(tracked, TAPS - 1, 0)
        b_checkpoint = _inputs_before(p_held, p_new, step + 1 + o_c, tracked, s_cp, s_xt, d_mask, TAPS - 1)
        p_kept = p_checkpoint + target * s_ks + o_c[:, None] * s_kp + o_d[None, :] * s_kd
        tl.store(p_kept, b_checkpoint, mask=tracked[:, None] & d_mask[None, :])
        moved = o_c < tl.where(known & (count > 0), TAPS - 1, 0)
        b_window = _inputs_before(p_held, p_new, count + o_c, moved, s_cp, s_xt, d_mask, TAPS - 1)
        # Loads and stores may be spread over threads differently: no store before every thread has loaded.
        tl.debug_barrier()
        tl.store(p_held + o_c[:, None] * s_cp, b_window, mask=moved[:, None] & d_mask[None, :])


def conv_update(
    out: Tensor, conv: Tensor, checkpoint_conv: Tensor, x: Tensor, weight: Tensor, state_slots: Tensor,
    cu_seqlens: Tensor, checkpoint_slots: Tensor, checkpoint_steps: Tensor,
) -> None:  # fmt: skip
    """Launch as many programs a sequence as it has tokens on average, up to a limit; see the eager function."""
    rows, (tokens, width), taps = state_slots.shape[0], x.shape, weight.shape[1]
    if x.numel() == 0 or rows == 0:
        return
    ring, run = x.dtype == torch.int64, power_of_two(taps, _LEAST_C)
    block = min(_BLOCK_D, power_of_two(width, _LEAST_D))
    runs = min(_RUNS, triton.cdiv(triton.cdiv(tokens, rows), run))
    kernel_for(x, _conv_update_kernel)[(triton.cdiv(width, block), runs, rows)](
        out, conv, checkpoint_conv, x, weight, state_slots, cu_seqlens, checkpoint_slots, checkpoint_steps,
        conv.shape[0], checkpoint_conv.shape[0], width,
        *strides(out, conv, checkpoint_conv, x, weight, state_slots, cu_seqlens, checkpoint_slots, checkpoint_steps),
        RING=ring, TAPS=taps, RUN=run, BLOCK_C=run, BLOCK_D=block,
        num_warps=1, **dependent_launch(x.device),
    )  # fmt: skip


@triton.jit(do_not_specialize=["size", "allocated", "s_slot", "s_last"])
def _state_scatter_kernel(
    p_pool, p_steps, p_state_slots, p_last, size, allocated, count, size_j, size_k,
    s_pl, s_ps, s_pi, s_pj, s_pk, s_sl, s_sb, s_sa, s_si, s_sj, s_sk, s_slot, s_last,
    FLAT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One layer, row and block of a state a program: pool [L,S,...], steps [L,R,A,...], state_slots and last [B]."""
    i_b, i_l = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    slot = tl.load(p_state_slots + i_b * s_slot).to(tl.int64)
    step = tl.load(p_last + i_b * s_last).to(tl.int64)
    if (slot >= 0) & (slot < size) & (step >= 0) & (step < allocated):
        index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        mask = index < count
        p_to = p_pool + i_l * s_pl + slot * s_ps
        p_from = p_steps + i_l * s_sl + i_b * s_sb + step * s_sa
        if FLAT:
            b_value = tl.load(p_from + index * s_sk, mask=mask, other=0)
            tl.store(p_to + index * s_pk, b_value, mask=mask)
        else:
            i_i, i_j, i_k = index // size_k // size_j, index // size_k % size_j, index % size_k
            b_value = tl.load(p_from + i_i * s_si + i_j * s_sj + i_k * s_sk, mask=mask, other=0)
            tl.store(p_to + i_i * s_pi + i_j * s_pj + i_k * s_pk, b_value, mask=mask)


def state_scatter(pool: Tensor, steps: Tensor, state_slots: Tensor, last_correct_step_indices: Tensor) -> None:
    """Launch one program a layer, row and block of a state, as words of its size; see the eager function."""
    rows, words = state_slots.shape[0], _WORDS[pool.element_size()]
    if pool.numel() == 0 or rows == 0:
        return
    inner = merged(pool.shape[2:], pool.stride()[2:], steps.stride()[3:])
    inner = [(1, 0, 0)] * (3 - len(inner)) + inner
    sizes, to, source = zip(*inner, strict=True)
    count = pool.shape[2:].numel()
    block = min(_BLOCK_COPY, power_of_two(count, _LEAST_COPY))
    kernel_for(pool, _state_scatter_kernel)[(triton.cdiv(count, block), rows, pool.shape[0])](
        pool.view(words), steps.view(words), state_slots, last_correct_step_indices,
        pool.shape[1], steps.shape[2], count, *sizes[1:], *pool.stride()[:2], *to, *steps.stride()[:3], *source,
        *strides(state_slots, last_correct_step_indices), FLAT=sizes[:2] == (1, 1), BLOCK=block,
    )  # fmt: skip


def merged(shape: torch.Size, first: tuple[int, ...], second: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Return (size, stride, stride) of the dimensions of two tensors, those joined that lie close in both."""
    joined: list[tuple[int, int, int]] = []
    for size, to, source in zip(shape, first, second, strict=True):
        if joined and joined[-1][1:] == (size * to, size * source):
            joined[-1] = (joined[-1][0] * size, to, source)
        else:
            joined.append((size, to, source))
    return joined


@jit_for_any_size
def _checkpoint_steps_kernel(p_steps, p_seq_lens, p_num_tokens, rows, interval, s_s, s_l, s_c, BLOCK: tl.constexpr):
    """Set steps [B] from seq_lens and num_tokens [B]: a program has a block of rows."""
    o_b = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = o_b < rows
    b_before = tl.load(p_seq_lens + o_b * s_l, mask=mask, other=0)
    b_count = tl.load(p_num_tokens + o_b * s_c, mask=mask, other=0)
    b_after = b_before + b_count
    b_reached = b_after - b_after % interval
    b_step = tl.where((b_count > 0) & (b_reached > b_before), b_reached - b_before - 1, -1)
    tl.store(p_steps + o_b * s_s, b_step, mask=mask)


def checkpoint_steps(steps: Tensor, seq_lens: Tensor, num_tokens: Tensor, interval: int) -> None:
    """Launch one program a block of rows; see the eager function."""
    rows = steps.shape[0]
    if rows == 0:
        return
    block = min(256, power_of_two(rows, LEAST_B))
    _checkpoint_steps_kernel[(triton.cdiv(rows, block),)](
        steps, seq_lens, num_tokens, rows, interval, *strides(steps, seq_lens, num_tokens), BLOCK=block, num_warps=1
    )


@jit_for_any_size
def _cursor_kernel(
    p_cursor, p_state_slots, p_last, rows, size, s_cs, s_cm, s_slot, s_last, REWIND: tl.constexpr, BLOCK: tl.constexpr
):
    """All rows in one program, which reads before it writes: several rows may name slot 0."""
    o_b = tl.arange(0, BLOCK).to(tl.int64)
    b_slot = tl.load(p_state_slots + o_b * s_slot, mask=o_b < rows, other=-1)
    mask = (b_slot >= 0) & (b_slot < size)
    p_entry = p_cursor + b_slot * s_cs
    if REWIND:
        b_pending = tl.load(p_entry, mask=mask, other=0)
        mask = mask & (b_pending > 0)
        b_pending = tl.zeros_like(b_pending)
    else:
        b_last = tl.load(p_last + o_b * s_last, mask=mask, other=-1)
        mask = mask & (b_last >= 0)
        b_pending = b_last + 1
    b_half = 1 - tl.load(p_entry + s_cm, mask=mask, other=0)
    tl.debug_barrier()
    tl.store(p_entry, b_pending, mask=mask)
    tl.store(p_entry + s_cm, b_half, mask=mask)


def replay_commit(cursor: Tensor, state_slots: Tensor, last_correct_step_indices: Tensor) -> None:
    """Launch one program; see the eager function."""
    _launch_cursor(cursor, state_slots, last_correct_step_indices, rewind=False)


def replay_rewind(cursor: Tensor, state_slots: Tensor) -> None:
    """Launch one program; see the eager function."""
    _launch_cursor(cursor, state_slots, state_slots, rewind=True)


def _launch_cursor(cursor: Tensor, slots: Tensor, last: Tensor, *, rewind: bool) -> None:
    rows = slots.shape[0]
    if rows == 0:
        return
    _cursor_kernel[(1,)](
        cursor, slots, last, rows, cursor.shape[0], *strides(cursor, slots, last),
        REWIND=rewind, BLOCK=power_of_two(rows, LEAST_B), num_warps=1,
    )  # fmt: skip
