"""Triton integer decisions: slots, acceptance, greedy choice.

`B` rows of a launch, `W` verify width, `T` tokens, `V` vocabulary.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from draftproof.kernels.triton_common import jit_for_any_size, power_of_two, strides

_BLOCK_V = 4096
# What any verify width has room in, and any probe's vocabulary.
LEAST_W, LEAST_V = 32, 512
LEAST_BLOCKS = 8
_NO_ID = tl.constexpr(1 << 62)


@jit_for_any_size
def _assign_slots_kernel(
    p_positions, p_slot_mapping, p_page_table, p_req_rows, p_seq_lens, p_num_drafts, known_rows, known_pages, width,
    page_size, max_len, s_pr, s_pw, s_sr, s_sw, s_tr, s_tp, s_r, s_l, s_c,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One row a program: positions, slot_mapping [B,W] of page_table [R,pages]; req_rows, seq_lens, num_drafts [B]."""
    i_r = tl.program_id(0).to(tl.int64)
    row = tl.load(p_req_rows + i_r * s_r)
    count = tl.load(p_num_drafts + i_r * s_c)
    o_w = tl.arange(0, BLOCK).to(tl.int64)
    b_place = tl.load(p_seq_lens + i_r * s_l) + o_w
    b_page = b_place // page_size
    b_live = o_w <= count
    known_pages = tl.where((row >= 0) & (row < known_rows), known_pages, 0)
    b_known = b_live & (b_place >= 0) & (b_page < known_pages)
    b_entry = tl.load(p_page_table + row * s_tr + b_page * s_tp, mask=b_known, other=-1)
    b_slot = tl.where(b_entry >= 0, b_entry * page_size + b_place % page_size, -1)
    b_surplus = tl.where(count < 0, 0, tl.minimum(b_place, max_len - 1))
    tl.store(p_slot_mapping + i_r * s_sr + o_w * s_sw, tl.where(b_live, b_slot, 0), mask=o_w < width)
    tl.store(p_positions + i_r * s_pr + o_w * s_pw, tl.where(b_live, b_place, b_surplus), mask=o_w < width)


def assign_slots(
    positions: Tensor, slot_mapping: Tensor, page_table: Tensor, req_rows: Tensor, seq_lens: Tensor, num_drafts: Tensor,
    page_size: int, max_len: int,
) -> None:  # fmt: skip
    """Launch one program a row; see the eager function."""
    if positions.numel() == 0:
        return
    _assign_slots_kernel[(positions.shape[0],)](
        positions, slot_mapping, page_table, req_rows, seq_lens, num_drafts, *page_table.shape, positions.shape[1],
        page_size, max_len, *strides(positions, slot_mapping, page_table, req_rows, seq_lens, num_drafts),
        BLOCK=power_of_two(positions.shape[1], LEAST_W), num_warps=1,
    )  # fmt: skip


@jit_for_any_size
def _greedy_accept_kernel(
    p_correct_len, p_bonus, p_accept_index, p_input_ids, p_target_tokens, p_num_drafts, width,
    s_l, s_b, s_ar, s_aw, s_ir, s_iw, s_hr, s_hw, s_c,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One row a program: correct_len, bonus [B] and accept_index of input_ids, target_tokens [B,W], num_drafts [B]."""
    i_r = tl.program_id(0).to(tl.int64)
    count = tl.load(p_num_drafts + i_r * s_c)
    o_w = tl.arange(0, BLOCK).to(tl.int64)
    limit = tl.minimum(count, width - 1)
    drafts = o_w < limit
    b_ids = tl.load(p_input_ids + i_r * s_ir + (o_w + 1) * s_iw, mask=drafts, other=0)
    b_target = tl.load(p_target_tokens + i_r * s_hr + o_w * s_hw, mask=drafts, other=0)
    correct = tl.min(tl.where(drafts & (b_ids == b_target), BLOCK, o_w), 0)
    bonus = tl.load(p_target_tokens + i_r * s_hr + correct * s_hw, mask=count >= 0, other=0)
    correct = tl.where(count < 0, -1, correct)
    tl.store(p_correct_len + i_r * s_l, correct)
    tl.store(p_bonus + i_r * s_b, bonus)
    tl.store(p_accept_index + i_r * s_ar + o_w * s_aw, tl.where(o_w <= correct, o_w, -1), mask=o_w < width)


def greedy_accept(
    correct_len: Tensor, bonus: Tensor, accept_index: Tensor, input_ids: Tensor, target_tokens: Tensor,
    num_drafts: Tensor,
) -> None:  # fmt: skip
    """Launch one program a row; see the eager function."""
    if input_ids.numel() == 0:
        return
    _greedy_accept_kernel[(input_ids.shape[0],)](
        correct_len, bonus, accept_index, input_ids, target_tokens, num_drafts, input_ids.shape[1],
        *strides(correct_len, bonus, accept_index, input_ids, target_tokens, num_drafts),
        BLOCK=power_of_two(input_ids.shape[1], LEAST_W), num_warps=1,
    )  # fmt: skip


@triton.jit(do_not_specialize=["vocabulary", "s_t"])
def _best_of_block_kernel(p_best, p_id, p_logits, vocabulary, s_t, s_v, BLOCK: tl.constexpr, LOWEST: tl.constexpr):
    """One token and block of logits [T,V] a program: the highest and its lowest id, in best and id [T,blocks]."""
    i_t, i_b = tl.program_id(0).to(tl.int64), tl.program_id(1)
    o_v = i_b.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = o_v < vocabulary
    b_logit = tl.load(p_logits + i_t * s_t + o_v * s_v, mask=mask, other=0)
    b_logit = b_logit.to(p_best.dtype.element_ty)
    number = mask & (b_logit == b_logit)
    best = tl.max(tl.where(number, b_logit, LOWEST), 0)
    lowest_id = tl.min(tl.where(number & (b_logit == best), o_v, _NO_ID), 0)
    tl.store(p_best + i_t * tl.num_programs(1) + i_b, best)
    tl.store(p_id + i_t * tl.num_programs(1) + i_b, lowest_id)


@jit_for_any_size
def _best_of_row_kernel(p_token_ids, p_best, p_id, blocks, s_c, BLOCK: tl.constexpr, LOWEST: tl.constexpr):
    """One token a program: token_ids [T] of best and id [T,blocks]."""
    i_t = tl.program_id(0).to(tl.int64)
    o_b = tl.arange(0, BLOCK)
    b_id = tl.load(p_id + i_t * blocks + o_b, mask=o_b < blocks, other=_NO_ID)
    number = b_id != _NO_ID
    b_best = tl.where(number, tl.load(p_best + i_t * blocks + o_b, mask=number, other=0), LOWEST)
    best = tl.max(b_best, 0)
    lowest_id = tl.min(tl.where(number & (b_best == best), b_id, _NO_ID), 0)
    tl.store(p_token_ids + i_t * s_c, tl.where(lowest_id == _NO_ID, 0, lowest_id))


def greedy_choice(token_ids: Tensor, logits: Tensor) -> None:
    """Find the best of each block of the vocabulary, then the best block; see the eager function."""
    tokens, vocabulary = logits.shape
    if tokens == 0:
        return
    block = min(_BLOCK_V, power_of_two(vocabulary, LEAST_V))
    blocks = triton.cdiv(vocabulary, block)
    exact = logits.dtype == torch.int64
    lowest = -(1 << 63) if exact else float("-inf")
    best = logits.new_empty((tokens, blocks), dtype=torch.int64 if exact else torch.float32)
    ids = token_ids.new_empty((tokens, blocks))
    _best_of_block_kernel[(tokens, blocks)](
        best, ids, logits, vocabulary, *logits.stride(), BLOCK=block, LOWEST=lowest, num_warps=8 if block > 1024 else 4
    )
    _best_of_row_kernel[(tokens,)](
        token_ids, best, ids, blocks, *token_ids.stride(),
        BLOCK=power_of_two(blocks, LEAST_BLOCKS), LOWEST=lowest, num_warps=1,
    )  # fmt: skip
