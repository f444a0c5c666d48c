"""Eager decisions on draft trees: the best tokens of a row, and acceptance by walking.

`B` rows of a launch, `W` verify width, `T` tokens, `V` vocabulary.
"""

import numpy as np
import torch
from torch import Tensor

from draftproof.kernels.registry import register


@register("token_ids", "scores")
def best_choices(token_ids: Tensor, scores: Tensor, logits: Tensor) -> None:
    """Set token_ids[t] to the ids of the k highest of logits [T,V], the highest first, the lowest id first on ties.

    scores [T,k], float64, are these logits less the highest of the row. There are k or more logits, and none is NaN.
    """
    values = logits.double().numpy()
    best = np.argsort(-values, axis=1, kind="stable")[:, : token_ids.shape[1]]
    chosen = np.take_along_axis(values, best, axis=1)
    token_ids.copy_(torch.from_numpy(best))
    scores.copy_(torch.from_numpy(chosen - chosen[:, :1]))


@register("correct_len", "bonus", "accept_index")
def accept_tree(
    correct_len: Tensor, bonus: Tensor, accept_index: Tensor, input_ids: Tensor, target_tokens: Tensor,
    parents: Tensor, num_drafts: Tensor,
) -> None:  # fmt: skip
    """Walk from row 0 to the first row below it that has its target token, and so on; parents [B,W-1] of rows 1 ..

    Row r of input_ids and target_tokens [B,W] takes part if r <= num_drafts[b]. accept_index [B,A] are the rows walked,
    at most A, then -1; correct_len[b] is one less than their number, bonus[b] the target token of the last. A padding
    row (num_drafts < 0) gets -1, 0 and no rows.
    """
    ids, chosen, above, count = input_ids.numpy(), target_tokens.numpy(), parents.numpy(), num_drafts.numpy()
    size, width = ids.shape
    each, live = np.arange(size), count >= 0
    takes_part = np.arange(1, width) <= count[:, None]
    row = np.zeros(size, dtype=np.int64)
    walked = np.full(accept_index.shape, -1, dtype=np.int64)
    walked[:, 0] = np.where(live, 0, -1)
    for place in range(1, walked.shape[1] if width > 1 else 1):
        fits = takes_part & (above == row[:, None]) & (ids[:, 1:] == chosen[each, row][:, None])
        live = live & fits.any(axis=1)
        row = np.where(live, fits.argmax(axis=1) + 1, row)
        walked[:, place] = np.where(live, row, -1)
    accept_index.numpy()[...] = walked
    correct_len.numpy()[...] = (walked >= 0).sum(axis=1) - 1
    bonus.numpy()[...] = np.where(count < 0, 0, chosen[each, row])
