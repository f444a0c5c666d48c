"""Attention of one token in two launches: its projection, then all that is between that and the output projection.

`S` pool slots, `N` KV heads, `G` query heads per KV head, `H` head size, `P` page size.

Here time is latency: one load waits for another, from the row to its table to the keys. So the second kernel reads all
that before its wait, while the projection still runs (rule 3 in triton_common). A program serves one query head; those
of a KV head rotate the same key, and the first of them stores it. The token's own entry is in registers: where the
table leads to its slot, that is what is attended to, and the pool is not read.
"""

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.triton_common import dependent_launch, power_of_two
from draftproof.kernels.triton_linear import launch

_WARPS = 8
# Most positions of a block, and bytes of keys in it. A second block costs as much as all that is around the first.
_MOST_POSITIONS = 256
_BLOCK_BYTES = 1 << 15
# Products of a block from which on every thread sums some of its own; see triton_linear.
_SUMMED_IN_THREADS = 1 << 13
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _turned(b_first, b_second, b_cos, b_sin, BLOCK_H: tl.constexpr):
    """Return the halves of a head rotated, rounded to their dtype and side by side.

    Joining them also keeps cosines where they are: threads hand the outcome around, where else each computes its own.
    """
    b_wide, b_other = b_first.to(tl.float32), b_second.to(tl.float32)
    b_low = (b_wide * b_cos - b_other * b_sin).to(b_first.dtype)
    b_high = (b_other * b_cos + b_wide * b_sin).to(b_first.dtype)
    return tl.reshape(tl.permute(tl.join(b_low, b_high), (1, 0)), (BLOCK_H,))


@triton.jit
def _entries(
    p_k_head, p_v_head, p_table, start, length, slot, size, s_ks, s_kd, s_vs, s_vd, s_tp, o_h, is_h,
    PAGE: tl.constexpr, LONG: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Return keys and values of BLOCK_C positions from `start` on, which are seen, and which are the token's own.

    Its own are 0, as is what is not seen. All loads pass L1, which may hold what was there before it was written.
    """
    o_c = start + tl.arange(0, BLOCK_C)
    b_entry = tl.load(p_table + o_c // PAGE * s_tp, mask=o_c < length, other=-1, cache_modifier=".cg")
    # The bound on the entry comes first: a huge one times the page size wraps round into the pool.
    seen = (b_entry >= 0) & (b_entry < size)
    b_slot = b_entry.to(tl.int64 if LONG else tl.int32) * PAGE + o_c % PAGE
    seen = seen & (b_slot < size)
    # Triton 3.6 takes this sum for a multiple of the page size (triton-lang/triton#9297) and loads 16 bytes at once
    # wherever they lie. Of -1 it knows better.
    b_slot = tl.where(seen, b_slot, -1)
    own = seen & (b_slot == slot)
    mask = (seen & (b_slot != slot))[:, None] & is_h[None, :]
    p_k = p_k_head + (b_slot * s_ks)[:, None] + (o_h * s_kd)[None, :]
    p_v = p_v_head + (b_slot * s_vs)[:, None] + (o_h * s_vd)[None, :]
    b_k = tl.load(p_k, mask=mask, other=0.0, cache_modifier=".cg")
    b_v = tl.load(p_v, mask=mask, other=0.0, cache_modifier=".cg")
    return b_k, b_v, seen, own


@triton.jit
def _attended(b_acc, total, highest, b_k, b_v, seen, own, b_q, b_own_k, b_own_v):
    """Return the weighted sum of values [H], the sum of weights and the highest score with a block more."""
    b_k = tl.where(own[:, None], b_own_k[None, :], b_k).to(tl.float32)
    b_v = tl.where(own[:, None], b_own_v[None, :], b_v).to(tl.float32)
    b_score = tl.where(seen, tl.sum(b_k * b_q[None, :], 1), float("-inf"))
    peak = tl.maximum(highest, tl.max(b_score, 0))
    # Until something is seen the peak is -inf, and -inf - -inf is not a number.
    base = tl.where(peak == float("-inf"), 0.0, peak)
    b_weight = tl.exp2(b_score - base)
    decay = tl.exp2(highest - base)
    b_acc = b_acc * decay + tl.sum(b_weight[:, None] * b_v, 0)
    return b_acc, total * decay + tl.sum(b_weight, 0), peak


@triton.jit(do_not_specialize=["size", "table_rows", "pages"])
def _token_kernel(
    p_out, p_k_pool, p_v_pool, p_qkv, p_inv_freq, p_position, p_slot, p_page_table, p_row, scale, size, table_rows,
    pages, s_oh, s_od, s_ks, s_kn, s_kd, s_vs, s_vn, s_vd, s_tr, s_tp, s_f,
    HEADS: tl.constexpr, GROUP: tl.constexpr, HALF: tl.constexpr, PAGE: tl.constexpr, LONG: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_H: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One query head a program: out [NG,H] of qkv [(NG+2N)H] over the pools [S,N,H], and the entry of k and v."""
    i_h = tl.program_id(0)
    i_n = i_h // GROUP
    row = tl.load(p_row, cache_modifier=".cg").to(tl.int64)
    position = tl.load(p_position, cache_modifier=".cg")
    slot = tl.load(p_slot, cache_modifier=".cg").to(tl.int64)
    o_f = tl.arange(0, BLOCK_H // 2)
    o_h = tl.arange(0, BLOCK_H)
    is_f = o_f < HALF
    is_h = o_h < 2 * HALF
    if BLOCK_H != 2 * HALF:
        # Each half is padded.
        is_h = o_h % (BLOCK_H // 2) < HALF
        o_h = tl.where(o_h < BLOCK_H // 2, o_h, o_h - BLOCK_H // 2 + HALF)

    length = tl.minimum(position.to(tl.int64) + 1, tl.where((row >= 0) & (row < table_rows), pages, 0) * PAGE)
    if not LONG:
        length = length.to(tl.int32)
    p_page_table += row * s_tr
    p_k_pool += i_n.to(tl.int64) * s_kn
    p_v_pool += i_n.to(tl.int64) * s_vn
    b_k, b_v, seen, own = _entries(
        p_k_pool, p_v_pool, p_page_table, 0, length, slot, size, s_ks, s_kd, s_vs, s_vd, s_tp, o_h, is_h,
        PAGE, LONG, BLOCK_C,
    )  # fmt: skip
    b_angle = position.to(tl.float32) * tl.load(p_inv_freq + o_f * s_f, mask=is_f, other=0.0).to(tl.float32)
    b_cos, b_sin = tl.cos(b_angle), tl.sin(b_angle)
    # Not before: the next kernel asks for weights, behind which the loads above would queue.
    if PDL:
        gdc_launch_dependents()
        gdc_wait()

    p_q = p_qkv + i_h * 2 * HALF
    p_own_k = p_qkv + (HEADS + i_n) * 2 * HALF
    p_own_v = p_own_k + HEADS // GROUP * 2 * HALF
    b_q_first = tl.load(p_q + o_f, mask=is_f, other=0.0)
    b_q_second = tl.load(p_q + HALF + o_f, mask=is_f, other=0.0)
    b_k_first = tl.load(p_own_k + o_f, mask=is_f, other=0.0)
    b_k_second = tl.load(p_own_k + HALF + o_f, mask=is_f, other=0.0)
    b_own_v = tl.load(p_own_v + o_h, mask=is_h, other=0.0)
    b_q = _turned(b_q_first, b_q_second, b_cos, b_sin, BLOCK_H).to(tl.float32) * (scale * _LOG2_E)
    b_own_k = _turned(b_k_first, b_k_second, b_cos, b_sin, BLOCK_H)
    b_acc = tl.zeros([BLOCK_H], dtype=tl.float32)
    b_acc, total, highest = _attended(b_acc, 0.0, float("-inf"), b_k, b_v, seen, own, b_q, b_own_k, b_own_v)
    for start in tl.range(BLOCK_C, length, BLOCK_C, num_stages=1):
        b_k, b_v, seen, own = _entries(
            p_k_pool, p_v_pool, p_page_table, start, length, slot, size, s_ks, s_kd, s_vs, s_vd, s_tp, o_h, is_h,
            PAGE, LONG, BLOCK_C,
        )  # fmt: skip
        b_acc, total, highest = _attended(b_acc, total, highest, b_k, b_v, seen, own, b_q, b_own_k, b_own_v)
    b_acc = b_acc / tl.where(total == 0.0, 1.0, total)
    tl.store(p_out + i_h * s_oh + o_h * s_od, b_acc.to(p_out.dtype.element_ty), mask=is_h)
    width = tl.where((slot >= 0) & (slot < size) & (i_h == i_n * GROUP), 2 * HALF, 0)
    is_stored = is_h & (o_h < width)
    tl.store(p_k_pool + slot * s_ks + o_h * s_kd, b_own_k, mask=is_stored)
    tl.store(p_v_pool + slot * s_vs + o_h * s_vd, b_own_v, mask=is_stored)


def token_attention(
    out: Tensor, k_pool: Tensor, v_pool: Tensor, x: Tensor, norm: Tensor, weight: Tensor, eps: float, inv_freq: Tensor,
    positions: Tensor, slot_mapping: Tensor, page_table: Tensor, req_rows: Tensor, page_size: int, scale: float,
) -> None:  # fmt: skip
    """Launch the projection, then one program a query head; see the eager function.

    Raises ValueError for more tokens than one, and for what the linear kernels raise it.
    """
    if x.shape[0] != 1:
        raise ValueError(f"x has {x.shape[0]} rows: expected one token (see kernels.paged_attention for more)")
    qkv = x.new_empty((1, weight.shape[0]))
    launch(qkv, x, weight, norm=norm, eps=eps, late=True)
    heads, width = out.shape[1:]
    size, kv_heads = k_pool.shape[:2]
    # Indices are int32 where they fit: half the instructions.
    reach = max(page_size, *(sum(pool.stride()) for pool in (k_pool, v_pool)))
    long = max(size * reach, page_table.shape[1] * page_size) >= 1 << 30
    block_h = 2 * power_of_two(width // 2)
    block = max(16, min(_MOST_POSITIONS, _BLOCK_BYTES // (block_h * x.element_size())))
    _token_kernel[(heads,)](
        out, k_pool, v_pool, qkv, inv_freq, positions, slot_mapping, page_table, req_rows, scale, size,
        *page_table.shape, *out.stride()[1:], *k_pool.stride(), *v_pool.stride(), *page_table.stride(),
        *inv_freq.stride(),
        HEADS=heads, GROUP=heads // kv_heads, HALF=width // 2, PAGE=page_size, LONG=long, BLOCK_C=block,
        BLOCK_H=block_h, num_warps=_WARPS, enable_fp_fusion=block * block_h >= _SUMMED_IN_THREADS,
        **dependent_launch(x.device),
    )  # fmt: skip
