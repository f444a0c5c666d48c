"""Triton penalties of the text so far. `B` rows of a launch, `W` verify width, `R` request rows, `V` vocabulary."""

import triton
import triton.language as tl
from torch import Tensor

from draftproof.kernels.triton_common import jit_for_any_size, power_of_two, strides
from draftproof.kernels.triton_decisions import LEAST_V

_BLOCK_V = 1024


@jit_for_any_size
def _apply_penalties_kernel(
    p_logits, p_ids, p_parents, p_req_rows, p_prompt, p_output, p_bias, p_repetitions, p_frequencies, p_presences,
    width, vocabulary,
    s_lb, s_lw, s_lv, s_ib, s_iw, s_pb, s_pw, s_r, s_tr, s_tv, s_or, s_ov, s_br, s_bv, s_m, s_f, s_e,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Penalise logits [B,W,V]: a program has a block of tokens of one row.

    ids and parents are [B,W], counts and biases [R,V].
    """
    i_b, i_w = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    o_v = (tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    ratio = tl.load(p_repetitions + i_b * s_m)
    mask = o_v < tl.where(ratio > 0, vocabulary, 0)
    i_r = tl.load(p_req_rows + i_b * s_r)
    b_count = tl.load(p_output + i_r * s_or + o_v * s_ov, mask=mask, other=0)
    row = i_w
    for _ in range(1, width):
        drafted = row > 0
        token = tl.load(p_ids + i_b * s_ib + row * s_iw, mask=drafted, other=-1)
        b_count += tl.where(o_v == token, 1, 0)
        row = tl.load(p_parents + i_b * s_pb + row * s_pw, mask=drafted, other=-1)
    b_prompt = tl.load(p_prompt + i_r * s_tr + o_v * s_tv, mask=mask, other=0)
    p_own = p_logits + i_b * s_lb + i_w * s_lw + o_v * s_lv
    b_logit = tl.load(p_own, mask=mask, other=0) + tl.load(p_bias + i_r * s_br + o_v * s_bv, mask=mask, other=0)
    some = tl.maximum(ratio, 1)
    # Division truncates: what is divided is not below 0.
    b_scaled = tl.where(b_logit > 0, tl.maximum(b_logit, 0) * 16 // some, (b_logit * some) >> 4)
    b_logit = tl.where((b_count > 0) | (b_prompt > 0), b_scaled, b_logit)
    b_logit -= tl.load(p_frequencies + i_b * s_f) * b_count
    b_logit -= tl.where(b_count > 0, tl.load(p_presences + i_b * s_e), 0)
    tl.store(p_own, b_logit, mask=mask)


def apply_penalties(
    logits: Tensor, input_ids: Tensor, parents: Tensor, req_rows: Tensor, prompt_counts: Tensor,
    output_counts: Tensor, biases: Tensor, repetitions: Tensor, frequencies: Tensor, presences: Tensor,
) -> None:  # fmt: skip
    """Launch one program a row and block of tokens; see the eager function."""
    if logits.numel() == 0:
        return
    size, width, vocabulary = logits.shape
    block = min(_BLOCK_V, power_of_two(vocabulary, LEAST_V))
    tensors = (logits, input_ids, parents, req_rows, prompt_counts, output_counts, biases)
    _apply_penalties_kernel[(size, width, triton.cdiv(vocabulary, block))](
        *tensors, repetitions, frequencies, presences, width, vocabulary,
        *strides(*tensors, repetitions, frequencies, presences),
        BLOCK=block, num_warps=4,
    )  # fmt: skip
