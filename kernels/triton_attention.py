"""Triton paged attention, one source for floats and the ring: addresses, masks and loops are shared.

`T` packed tokens, `S` pool slots, `N` KV heads, `G` query heads per KV head, `P` page size, Hk
and Hv the head sizes of K and V.

A program serves one token and one KV head, all G query heads together, over one split of the context. Lengths live on
the device, so the number of splits follows from shapes alone and each program cuts the token's own length into equal
runs of whole blocks. With more than one split the partial sums go through a temporary and a second kernel; a table that
holds a short context has one split, since reading it takes one program less time than the second kernel does.

A block's table entries are read a block ahead, so that its K and V wait for no other load. For floats sizes are
constants of the compiled kernel, and so is the page size when it is a power of two, as a division by it comes before
every such load. The ring has one kernel for all sizes.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.triton_common import dependent_launch, kernel_for, mix, power_of_two, strides
from draftproof.kernels.triton_fp8 import decode

_PROGRAMS = 264
_MOST_SPLITS = 16
# The most positions of a table, for floats, that are not worth a second kernel.
_ONE_SPLIT = 512
# Bytes of K and V that a program holds at once: more positions to a block where entries are small.
_BLOCK_BYTES = 1 << 15
# The ring form holds [G, C, H] int64 products at once.
_RING_BLOCK_C = 16
# Blocks of the ring hold any probe.
_RING_BLOCK_G, _RING_BLOCK_H = 4, 8
_SIZES = ("group", "k_width", "v_width")
_STRIDES = ("s_as", "s_an", "s_bs", "s_bn", "s_r", "s_f", "s_p")
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _slots(p_page_table, start, last, page_size, size, s_tp, PAGE: tl.constexpr, BLOCK_C: tl.constexpr):
    """Return the slots of positions start .. start + BLOCK_C - 1 of a table row, -1 for what is not visible."""
    o_c = start + tl.arange(0, BLOCK_C)
    if PAGE == 0:
        b_page, b_within = o_c // page_size, o_c % page_size
    else:
        page_size = PAGE
        b_page, b_within = o_c // PAGE, o_c % PAGE
    seen = o_c < last
    b_entry = tl.load(p_page_table + b_page.to(tl.int64) * s_tp, mask=seen, other=-1).to(tl.int64)
    # The bound on the entry comes first: a huge one times the page size wraps round into the pool.
    seen = seen & (b_entry >= 0) & (b_entry < size)
    b_slot = b_entry * page_size + b_within
    return tl.where(seen & (b_slot < size), b_slot, -1)


@triton.jit
def _read_back(b_codes, b_scale, o_h):
    """Return what codes [C,H] of scales [C] stand for; see read_back in eager_codes.py."""
    b_scale = b_scale[:, None]
    return tl.where(o_h[None, :] == 0, b_scale, (b_scale | 1) * (2 * b_codes.to(tl.int64) + 1))


@triton.jit(do_not_specialize=["size", "table_rows", "pages", *_SIZES, *_STRIDES])
def _attention_kernel(
    p_out, p_partial, p_weight, p_q, p_k_pool, p_v_pool, p_k_scales, p_v_scales, p_page_table, p_req_rows, p_first,
    p_positions, page_size, scale, gain, size, table_rows, pages, group, k_width, v_width, s_ot, s_oh, s_od, s_qt, s_qh,
    s_qd, s_ks, s_kn, s_kd, s_vs, s_vn, s_vd, s_as, s_an, s_bs, s_bn, s_tr, s_tp, s_r, s_f, s_p,
    CODES: tl.constexpr, FP8: tl.constexpr, WINDOWED: tl.constexpr, RING: tl.constexpr, PAGE: tl.constexpr,
    LONG: tl.constexpr, GROUP: tl.constexpr, K_WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK_G: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Attend with q [T,N*G,Hk] to pools [S,N,H]: a program has one token t, one KV head and one split.

    Without splits the output goes to out [T,N*G,Hv]; with splits it goes to p_partial [T,N*G,splits,Hv], and the (peak,
    total) of each split to p_weight [T,N*G,splits,2].
    """
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    if not RING:
        group, k_width, v_width = GROUP, K_WIDTH, V_WIDTH
    i_t, i_n, i_b = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64), tl.program_id(2)
    row = tl.load(p_req_rows + i_t * s_r).to(tl.int64)
    pages = tl.where((row >= 0) & (row < table_rows), pages, 0)
    length = tl.minimum(tl.load(p_positions + i_t * s_p).to(tl.int64) + 1, pages.to(tl.int64) * page_size)
    length = tl.maximum(length, 0)
    begin = tl.zeros_like(length)
    if WINDOWED:
        begin = tl.minimum(tl.maximum(tl.load(p_first + i_t * s_f).to(tl.int64), 0), length)
    if not LONG:
        length, begin = length.to(tl.int32), begin.to(tl.int32)
    run = tl.cdiv(tl.cdiv(length - begin, SPLITS), BLOCK_C) * BLOCK_C
    first = begin + i_b * run
    last = tl.minimum(first + run, length)

    o_g = tl.arange(0, BLOCK_G)
    o_k = tl.arange(0, BLOCK_K).to(tl.int64)
    o_v = tl.arange(0, BLOCK_V).to(tl.int64)
    heads = i_n * group + o_g
    q_mask = (o_g[:, None] < group) & (o_k[None, :] < k_width)
    b_q = tl.load(p_q + i_t * s_qt + heads[:, None] * s_qh + o_k[None, :] * s_qd, mask=q_mask, other=0)
    if RING:
        b_acc = tl.zeros([BLOCK_G, BLOCK_V], dtype=tl.int64)
        b_total = tl.zeros([BLOCK_G], dtype=tl.int64)
        b_highest = tl.zeros([BLOCK_G], dtype=tl.int64)
    else:
        b_acc = tl.zeros([BLOCK_G, BLOCK_V], dtype=tl.float32)
        b_total = tl.zeros([BLOCK_G], dtype=tl.float32)
        b_highest = tl.full([BLOCK_G], float("-inf"), dtype=tl.float32)

    p_page_table += row * s_tr
    b_next = _slots(p_page_table, first, last, page_size, size, s_tp, PAGE, BLOCK_C)
    for start in range(first, last, BLOCK_C):
        b_slot, b_next = b_next, _slots(p_page_table, start + BLOCK_C, last, page_size, size, s_tp, PAGE, BLOCK_C)
        seen = b_slot >= 0
        p_k = p_k_pool + b_slot[:, None] * s_ks + i_n * s_kn + o_k[None, :] * s_kd
        p_v = p_v_pool + b_slot[:, None] * s_vs + i_n * s_vn + o_v[None, :] * s_vd
        b_k = tl.load(p_k, mask=seen[:, None] & (o_k[None, :] < k_width), other=0)
        b_v = tl.load(p_v, mask=seen[:, None] & (o_v[None, :] < v_width), other=0)
        if CODES:
            b_k = _read_back(b_k, tl.load(p_k_scales + b_slot * s_as + i_n * s_an, mask=seen, other=0), o_k)
            b_v = _read_back(b_v, tl.load(p_v_scales + b_slot * s_bs + i_n * s_bn, mask=seen, other=0), o_v)
        if FP8:
            # Exact in every dtype: the scales are in `scale` and in `gain`.
            b_k, b_v = decode(b_k).to(b_q.dtype), decode(b_v).to(b_q.dtype)
        if RING:
            b_score = tl.sum(b_q[:, None, :] * b_k[None, :, :], 2)
            b_weight = tl.where(seen[None, :], mix(b_score) | 1, 0)
            b_acc += tl.sum(b_weight[:, :, None] * b_v[None, :, :], 1)
        else:
            b_score = tl.dot(b_q, tl.trans(b_k), input_precision="ieee") * (scale * _LOG2_E)
            b_score = tl.where(seen[None, :], b_score, float("-inf"))
            b_peak = tl.maximum(b_highest, tl.max(b_score, 1))
            # Until something is seen the peak is -inf, and -inf - -inf is not a number.
            b_base = tl.where(b_peak == float("-inf"), 0.0, b_peak)
            b_weight = tl.exp2(b_score - b_base[:, None])
            b_decay = tl.exp2(b_highest - b_base)
            b_total = b_total * b_decay + tl.sum(b_weight, 1)
            b_acc = b_acc * b_decay[:, None] + tl.dot(b_weight.to(b_v.dtype), b_v, input_precision="ieee")
            b_highest = b_peak

    if FP8:
        b_acc *= gain
    out_mask = (o_g[:, None] < group) & (o_v[None, :] < v_width)
    if SPLITS == 1:
        if not RING:
            b_acc = b_acc / tl.where(b_total == 0.0, 1.0, b_total)[:, None]
        p_o = p_out + i_t * s_ot + heads[:, None] * s_oh + o_v[None, :] * s_od
        tl.store(p_o, b_acc.to(p_out.dtype.element_ty), mask=out_mask)
    else:
        part = (i_t * tl.num_programs(1) * group + heads) * SPLITS + i_b
        tl.store(p_partial + part[:, None] * v_width + o_v[None, :], b_acc, mask=out_mask)
        if not RING:
            tl.store(p_weight + part * 2, b_highest, mask=o_g < group)
            tl.store(p_weight + part * 2 + 1, b_total, mask=o_g < group)


@triton.jit(do_not_specialize=["v_width"])
def _join_kernel(
    p_out, p_partial, p_weight, v_width, s_ot, s_oh, s_od,
    RING: tl.constexpr, V_WIDTH: tl.constexpr, SPLITS: tl.constexpr, BLOCK_V: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Join the splits of one token and query head."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    if not RING:
        v_width = V_WIDTH
    i_t, i_h = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    o_b = tl.arange(0, SPLITS)
    o_v = tl.arange(0, BLOCK_V)
    part = (i_t * tl.num_programs(1) + i_h) * SPLITS + o_b
    b_part = tl.load(p_partial + part[:, None] * v_width + o_v[None, :], mask=o_v[None, :] < v_width, other=0)
    if RING:
        b_out = tl.sum(b_part, 0)
    else:
        b_highest = tl.load(p_weight + part * 2)
        peak = tl.max(b_highest, 0)
        b_scale = tl.exp2(b_highest - tl.where(peak == float("-inf"), 0.0, peak))
        total = tl.sum(tl.load(p_weight + part * 2 + 1) * b_scale, 0)
        b_out = tl.sum(b_part * b_scale[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    p_o = p_out + i_t * s_ot + i_h * s_oh + o_v * s_od
    tl.store(p_o, b_out.to(p_out.dtype.element_ty), mask=o_v < v_width)


def _splits(tokens: int, heads: int, capacity: int, block: int) -> int:
    """Return the power of two that fills the device, without more splits than the table has blocks."""
    wanted = min(_MOST_SPLITS, _PROGRAMS // (tokens * heads), triton.cdiv(capacity, block))
    return 1 << max(0, wanted.bit_length() - 1)


def paged_attention(
    out: Tensor, q: Tensor, k_pool: Tensor, v_pool: Tensor, page_table: Tensor, req_rows: Tensor, positions: Tensor,
    page_size: int, scale: float,
) -> None:  # fmt: skip
    """Launch programs (token, KV head, split); see the eager function. float64 is eager only."""
    _launch(out, q, (k_pool, v_pool), None, page_table, req_rows, None, positions, page_size, scale)


def windowed_attention(
    out: Tensor, q: Tensor, k_pool: Tensor, v_pool: Tensor, page_table: Tensor, req_rows: Tensor, first: Tensor,
    positions: Tensor, page_size: int, scale: float,
) -> None:  # fmt: skip
    """Launch as `paged_attention` does, each token from its own first position on; see the eager function."""
    _launch(out, q, (k_pool, v_pool), None, page_table, req_rows, first, positions, page_size, scale)


def quantised_attention(
    out: Tensor, q: Tensor, k_pool: Tensor, v_pool: Tensor, k_scales: Tensor, v_scales: Tensor, page_table: Tensor,
    req_rows: Tensor, first: Tensor, positions: Tensor, page_size: int, scale: float,
) -> None:  # fmt: skip
    """Launch as `windowed_attention` does, over codes and their scales; see the eager function."""
    pools, scales = (k_pool, v_pool), (k_scales, v_scales)
    _launch(out, q, pools, scales, page_table, req_rows, first, positions, page_size, scale)


def fp8_attention(
    out: Tensor, q: Tensor, k_pool: Tensor, v_pool: Tensor, page_table: Tensor, req_rows: Tensor, first: Tensor,
    positions: Tensor, page_size: int, scale: float, k_scale: float, v_scale: float,
) -> None:  # fmt: skip
    """Launch as `windowed_attention` does, over bytes of e4m3fn; the scales of a layer leave both products."""
    pools = (k_pool, v_pool)
    _launch(out, q, pools, None, page_table, req_rows, first, positions, page_size, scale * k_scale, v_scale)


def _launch(
    out: Tensor, q: Tensor, pools: tuple[Tensor, Tensor], scales: tuple[Tensor, Tensor] | None, page_table: Tensor,
    req_rows: Tensor, first: Tensor | None, positions: Tensor, page_size: int, scale: float, gain: float = 1.0,
) -> None:  # fmt: skip
    k_pool, v_pool = pools
    # Without codes no scale is read.
    k_scales, v_scales = scales or (k_pool[:, :, 0], v_pool[:, :, 0])
    tokens, heads, v_width = out.shape
    if out.numel() == 0:
        return
    size, kv_heads, k_width = k_pool.shape
    ring = out.dtype == torch.int64
    capacity = page_table.shape[1] * page_size
    # Positions are int32 where they fit, a block beyond the last included: a division of int64 is slow.
    long = capacity >= 1 << 30
    entry = power_of_two(k_width) + power_of_two(v_width)
    # Large blocks serve latency; once there are programs enough, small ones let more of them run at once.
    most = 128 if tokens * kv_heads <= _PROGRAMS else 64
    fitting = max(16, _BLOCK_BYTES // (entry * out.element_size()))
    # A power of two, which `entry` need not be.
    block = _RING_BLOCK_C if ring else min(most, 1 << fitting.bit_length() - 1)
    splits = 1 if capacity <= _ONE_SPLIT and not ring else _splits(tokens, kv_heads, capacity, block)
    # tl.dot wants sides of 16 or more.
    least_g, least_h = (_RING_BLOCK_G, _RING_BLOCK_H) if ring else (16, 16)
    group = heads // kv_heads
    constants = (0, 0, 0) if ring else (group, k_width, v_width)
    partial = weight = out
    begins = positions if first is None else first
    if splits > 1:
        partial = out.new_empty((tokens, heads, splits, v_width), dtype=torch.int64 if ring else torch.float32)
        weight = out if ring else partial.new_empty((tokens, heads, splits, 2))
    kernel_for(out, _attention_kernel)[(tokens, kv_heads, splits)](
        out, partial, weight, q, k_pool, v_pool, k_scales, v_scales, page_table, req_rows, begins, positions, page_size,
        scale, gain, size, *page_table.shape, group, k_width, v_width,
        *strides(out, q, k_pool, v_pool, k_scales, v_scales, page_table, req_rows, begins, positions),
        CODES=scales is not None, FP8=k_pool.dtype == torch.uint8, WINDOWED=first is not None, RING=ring,
        PAGE=page_size if page_size & (page_size - 1) == 0 and not long and not ring else 0, LONG=long,
        **dict(zip(("GROUP", "K_WIDTH", "V_WIDTH"), constants, strict=True)), SPLITS=splits,
        BLOCK_G=power_of_two(group, least_g), BLOCK_C=block, BLOCK_K=power_of_two(k_width, least_h),
        BLOCK_V=power_of_two(v_width, least_h),
        # With fewer positions than threads Triton reads an entry where it is used, instead of handing it around.
        num_warps=8 if block == 128 else 4, num_stages=3, **dependent_launch(out.device),
    )  # fmt: skip
    if splits > 1:
        kernel_for(out, _join_kernel)[(tokens, heads)](
            out, partial, weight, v_width, *out.stride(),
            RING=ring, V_WIDTH=constants[2], SPLITS=splits, BLOCK_V=power_of_two(v_width, _RING_BLOCK_H),
            num_warps=1 if v_width <= 128 else 4, **dependent_launch(out.device),
        )  # fmt: skip
