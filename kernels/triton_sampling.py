"""Triton draws of sampled verification. `T` tokens, `K` drafts for one place, `V` vocabulary."""

import triton
import triton.language as tl
from torch import Tensor

from draftproof.kernels.triton_common import jit_for_any_size, power_of_two, strides
from draftproof.kernels.triton_decisions import LEAST_V

_BLOCK_V = 1024
LEAST_K = 16


@triton.jit
def _coin(seed, position, draw, most):
    """Return a number below `most` (Philox 4x32-10), all int64."""
    low = 0xFFFFFFFF
    k0 = (seed & low).to(tl.uint64)
    k1 = ((seed >> 32) & low).to(tl.uint64)
    a = (position & low).to(tl.uint64)
    b = (position * 0 + draw).to(tl.uint64)
    c = (position * 0).to(tl.uint64)
    d = c
    for _ in tl.static_range(10):
        first = a * 0xD2511F53
        second = c * 0xCD9E8D57
        a = (second >> 32) ^ b ^ k0
        b = second & low
        c = (first >> 32) ^ d ^ k1
        d = first & low
        k0 = (k0 + 0x9E3779B9) & low
        k1 = (k1 + 0xBB67AE85) & low
    # The high word of (a 2^32 + b) times most, which is below 2^62.
    below = most.to(tl.uint64) & low
    above = most.to(tl.uint64) >> 32
    middle = ((b * below) >> 32) + ((a * below) & low) + ((b * above) & low)
    return (a * above + ((a * below) >> 32) + ((b * above) >> 32) + (middle >> 32)).to(tl.int64)


@jit_for_any_size
def _sampled_choice_kernel(
    p_token_ids, p_weights, p_drafts, p_seeds, p_positions, vocabulary, columns,
    s_i, s_t, s_v, s_dt, s_dk, s_s, s_p,
    BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One token a program: token_ids [T] of weights [T,V], drafts [T,K], seeds and positions [T]."""
    i_t = tl.program_id(0).to(tl.int64)
    seed, position = tl.load(p_seeds + i_t * s_s), tl.load(p_positions + i_t * s_p)
    o_k = tl.arange(0, BLOCK_K)
    b_draft = tl.load(p_drafts + i_t * s_dt + o_k * s_dk, mask=o_k < columns, other=-1)
    has_draft = (b_draft >= 0) & (b_draft < vocabulary)
    b_own = tl.load(p_weights + i_t * s_t + b_draft * s_v, mask=has_draft, other=0)
    own = tl.sum(b_own, 0)
    o_v = tl.arange(0, BLOCK).to(tl.int64)
    total = own * 0
    for start in range(0, vocabulary, BLOCK):
        total += tl.sum(tl.load(p_weights + i_t * s_t + (start + o_v) * s_v, mask=start + o_v < vocabulary, other=0), 0)
    accepts = has_draft & (tl.cumsum(b_own, 0) > _coin(seed, position, 0, total))
    place = tl.min(tl.where(accepts, o_k, BLOCK_K), 0)
    accepted = tl.sum(tl.where(o_k == place, b_draft, 0), 0)
    number = _coin(seed, position, 1, total - own)
    below = own * 0
    drawn = own * 0 + vocabulary
    for start in range(0, vocabulary, BLOCK):
        b_id = start + o_v
        b_rest = tl.load(p_weights + i_t * s_t + b_id * s_v, mask=b_id < vocabulary, other=0)
        for column in range(columns):
            b_rest = tl.where(b_id == tl.load(p_drafts + i_t * s_dt + column * s_dk), 0, b_rest)
        b_sum = below + tl.cumsum(b_rest, 0)
        drawn = tl.minimum(drawn, tl.min(tl.where((b_sum > number) & (b_id < vocabulary), b_id, vocabulary), 0))
        below += tl.sum(b_rest, 0)
    tl.store(p_token_ids + i_t * s_i, tl.where(place < BLOCK_K, accepted, drawn), mask=total > 0)


def sampled_choice(token_ids: Tensor, weights: Tensor, drafts: Tensor, seeds: Tensor, positions: Tensor) -> None:
    """Launch one program a token; see the eager function."""
    tokens, vocabulary = weights.shape
    if tokens == 0:
        return
    _sampled_choice_kernel[(tokens,)](
        token_ids, weights, drafts, seeds, positions, vocabulary, drafts.shape[1],
        *strides(token_ids, weights, drafts, seeds, positions),
        BLOCK=min(_BLOCK_V, power_of_two(vocabulary, LEAST_V)), BLOCK_K=power_of_two(drafts.shape[1], LEAST_K),
        num_warps=4,
    )  # fmt: skip


@jit_for_any_size
def _rejection_choice_kernel(
    p_token_ids, p_weights, p_draft_weights, p_drafts, p_seeds, p_positions, vocabulary,
    s_i, s_t, s_v, s_qt, s_qv, s_d, s_s, s_p,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One token a program: token_ids [T] of weights and draft_weights [T,V], drafts, seeds and positions [T]."""
    i_t = tl.program_id(0).to(tl.int64)
    seed, position = tl.load(p_seeds + i_t * s_s), tl.load(p_positions + i_t * s_p)
    draft = tl.load(p_drafts + i_t * s_d)
    has_draft = (draft >= 0) & (draft < vocabulary)
    p = tl.load(p_weights + i_t * s_t + draft * s_v, mask=has_draft, other=0)
    q = tl.load(p_draft_weights + i_t * s_qt + draft * s_qv, mask=has_draft, other=0)
    o_v = tl.arange(0, BLOCK).to(tl.int64)
    total, own, rest = p * 0, p * 0, p * 0
    for start in range(0, vocabulary, BLOCK):
        mask = start + o_v < vocabulary
        total += tl.sum(tl.load(p_weights + i_t * s_t + (start + o_v) * s_v, mask=mask, other=0), 0)
        own += tl.sum(tl.load(p_draft_weights + i_t * s_qt + (start + o_v) * s_qv, mask=mask, other=0), 0)
    for start in range(0, vocabulary, BLOCK):
        mask = start + o_v < vocabulary
        b_p = tl.load(p_weights + i_t * s_t + (start + o_v) * s_v, mask=mask, other=0)
        b_q = tl.load(p_draft_weights + i_t * s_qt + (start + o_v) * s_qv, mask=mask, other=0)
        rest += tl.sum(tl.maximum(b_p * own - b_q * total, 0), 0)
    accepted = _coin(seed, position, 0, q * total) < p * own
    number = _coin(seed, position, 1, rest)
    below = p * 0
    drawn = p * 0 + vocabulary
    for start in range(0, vocabulary, BLOCK):
        b_id = start + o_v
        mask = b_id < vocabulary
        b_p = tl.load(p_weights + i_t * s_t + b_id * s_v, mask=mask, other=0)
        b_q = tl.load(p_draft_weights + i_t * s_qt + b_id * s_qv, mask=mask, other=0)
        b_rest = tl.maximum(b_p * own - b_q * total, 0)
        b_sum = below + tl.cumsum(b_rest, 0)
        drawn = tl.minimum(drawn, tl.min(tl.where((b_sum > number) & mask, b_id, vocabulary), 0))
        below += tl.sum(b_rest, 0)
    is_one = has_draft & (total > 0) & (q > 0)
    tl.store(p_token_ids + i_t * s_i, tl.where(accepted, draft, drawn), mask=is_one)


def rejection_choice(
    token_ids: Tensor, weights: Tensor, draft_weights: Tensor, drafts: Tensor, seeds: Tensor, positions: Tensor
) -> None:
    """Launch one program a token; see the eager function."""
    tokens, vocabulary = weights.shape
    if tokens == 0:
        return
    _rejection_choice_kernel[(tokens,)](
        token_ids, weights, draft_weights, drafts, seeds, positions, vocabulary,
        *strides(token_ids, weights, draft_weights, drafts, seeds, positions),
        BLOCK=min(_BLOCK_V, power_of_two(vocabulary, LEAST_V)), num_warps=4,
    )  # fmt: skip
