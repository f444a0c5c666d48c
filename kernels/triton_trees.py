"""Triton decisions on draft trees: the best tokens of a row, and acceptance by walking.

`B` rows of a launch, `W` verify width, `T` tokens, `V` vocabulary.
"""

import triton
import triton.language as tl
from torch import Tensor

from draftproof.kernels.triton_common import jit_for_any_size, power_of_two, strides
from draftproof.kernels.triton_decisions import LEAST_V, LEAST_W

_NO_ID = tl.constexpr(1 << 62)


@triton.jit(do_not_specialize=["vocabulary", "s_it", "s_ik", "s_st", "s_sk", "s_t"])
def _best_choices_kernel(
    p_token_ids, p_scores, p_logits, vocabulary, s_it, s_ik, s_st, s_sk, s_t, s_v,
    TOPK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token a program: token_ids and scores [T,k] of logits [T,V], each the best behind the one before it."""
    i_t = tl.program_id(0).to(tl.int64)
    last = float("inf")
    last_id = tl.full([], -1, dtype=tl.int64)
    highest = tl.full([], 0, dtype=tl.float64)
    for place in tl.static_range(TOPK):
        best = tl.full([], float("-inf"), dtype=tl.float64)
        best_id = tl.full([], _NO_ID, dtype=tl.int64)
        for start in range(0, vocabulary, BLOCK):
            o_v = start + tl.arange(0, BLOCK).to(tl.int64)
            mask = o_v < vocabulary
            b_logit = tl.load(p_logits + i_t * s_t + o_v * s_v, mask=mask, other=0).to(tl.float64)
            # Behind the one before: lower, or as high with a higher id.
            left = mask & ((b_logit < last) | ((b_logit == last) & (o_v > last_id)))
            block = tl.max(tl.where(left, b_logit, float("-inf")), 0)
            block_id = tl.min(tl.where(left & (b_logit == block), o_v, _NO_ID), 0)
            better = (block_id != _NO_ID) & ((block > best) | (best_id == _NO_ID))
            best = tl.where(better, block, best)
            best_id = tl.where(better, block_id, best_id)
        if place == 0:
            highest = best
        tl.store(p_token_ids + i_t * s_it + place * s_ik, best_id)
        tl.store(p_scores + i_t * s_st + place * s_sk, best - highest)
        last, last_id = best, best_id


def best_choices(token_ids: Tensor, scores: Tensor, logits: Tensor) -> None:
    """Launch one program a token; see the eager function."""
    tokens, topk = token_ids.shape
    if tokens == 0:
        return
    _best_choices_kernel[(tokens,)](
        token_ids, scores, logits, logits.shape[1], *strides(token_ids, scores, logits),
        TOPK=topk, BLOCK=min(1024, power_of_two(logits.shape[1], LEAST_V)), num_warps=4,
    )  # fmt: skip


@jit_for_any_size
def _accept_tree_kernel(
    p_correct_len, p_bonus, p_accept_index, p_input_ids, p_target_tokens, p_parents, p_num_drafts, width, most,
    s_l, s_b, s_ar, s_aw, s_ir, s_iw, s_hr, s_hw, s_pr, s_pw, s_c,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write correct_len, bonus [B] and accept_index [B,A]: a program has one row.

    It reads input_ids, target_tokens [B,W] and parents [B,W-1].
    """
    i_r = tl.program_id(0).to(tl.int64)
    count = tl.load(p_num_drafts + i_r * s_c)
    o_w = tl.arange(0, BLOCK).to(tl.int64)
    drafts = (o_w >= 1) & (o_w < width) & (o_w <= count)
    b_ids = tl.load(p_input_ids + i_r * s_ir + o_w * s_iw, mask=drafts, other=0)
    b_above = tl.load(p_parents + i_r * s_pr + (o_w - 1) * s_pw, mask=drafts, other=-1)
    live = count >= 0
    row = tl.full([], 0, dtype=tl.int64)
    correct = tl.where(live, 0, -1).to(tl.int64)
    tl.store(p_accept_index + i_r * s_ar, correct)
    for place in range(1, most):
        token = tl.load(p_target_tokens + i_r * s_hr + row * s_hw)
        child = tl.min(tl.where(drafts & (b_above == row) & (b_ids == token), o_w, BLOCK), 0)
        live = live & (child < BLOCK)
        row = tl.where(live, child, row)
        correct += tl.where(live, 1, 0)
        tl.store(p_accept_index + i_r * s_ar + place * s_aw, tl.where(live, row, -1))
    tl.store(p_correct_len + i_r * s_l, correct)
    bonus = tl.load(p_target_tokens + i_r * s_hr + row * s_hw, mask=count >= 0, other=0)
    tl.store(p_bonus + i_r * s_b, bonus)


def accept_tree(
    correct_len: Tensor, bonus: Tensor, accept_index: Tensor, input_ids: Tensor, target_tokens: Tensor,
    parents: Tensor, num_drafts: Tensor,
) -> None:  # fmt: skip
    """Launch one program a row; see the eager function."""
    if input_ids.numel() == 0:
        return
    _accept_tree_kernel[(input_ids.shape[0],)](
        correct_len, bonus, accept_index, input_ids, target_tokens, parents, num_drafts, input_ids.shape[1],
        accept_index.shape[1],
        *strides(correct_len, bonus, accept_index, input_ids, target_tokens, parents, num_drafts),
        BLOCK=power_of_two(input_ids.shape[1], LEAST_W), num_warps=1,
    )  # fmt: skip
