"""Eager integer decisions: slots, acceptance, greedy choice.

`B` rows of a launch, `W` verify width, `T` tokens, `V` vocabulary, `R` requests, `P` page size.
"""

import numpy as np
import torch
from torch import Tensor

from draftproof.kernels.registry import register


@register("positions", "slot_mapping")
def assign_slots(
    positions: Tensor, slot_mapping: Tensor, page_table: Tensor, req_rows: Tensor, seq_lens: Tensor, num_drafts: Tensor,
    page_size: int, max_len: int,
) -> None:  # fmt: skip
    """Fill positions and slot_mapping [B,W]: column i <= num_drafts[b] is live, at position seq_lens[b] + i.

    Surplus columns get slot 0 and the same position clamped to max_len - 1; a padding row (num_drafts < 0) gets
    position 0 and slot 0. A live position for which page_table [R,pages] has no page, or of a row of req_rows that
    does not exist, gets slot -1.
    """
    entries, index, count = page_table.numpy(), req_rows.numpy(), num_drafts.numpy()[:, None]
    column = np.arange(positions.shape[1])
    place = seq_lens.numpy()[:, None] + column
    live = column <= count
    page, within = np.divmod(place, page_size)
    known = (page.view(np.uint64) < entries.shape[1]) & (index.view(np.uint64) < entries.shape[0])[:, None]
    entry = entries[np.where(known, index[:, None], 0), np.where(known, page, 0)]
    slot = np.where(known & (entry >= 0), entry * page_size + within, -1)
    slot_mapping.numpy()[...] = np.where(live, slot, 0)
    positions.numpy()[...] = np.where(live, place, np.where(count < 0, 0, np.minimum(place, max_len - 1)))


@register("correct_len", "bonus", "accept_index")
def greedy_accept(
    correct_len: Tensor, bonus: Tensor, accept_index: Tensor, input_ids: Tensor, target_tokens: Tensor,
    num_drafts: Tensor,
) -> None:  # fmt: skip
    """Count how many drafts input_ids[b, 1..num_drafts[b]] in a run agree with target_tokens [B,W] one column before.

    The count is correct_len[b], and bonus[b] = target_tokens[b, correct_len[b]]. accept_index [B,W] are the columns
    0 .. correct_len[b], then -1. A padding row (num_drafts < 0) gets -1, 0 and no columns.
    """
    proposed, chosen, count = input_ids.numpy(), target_tokens.numpy(), num_drafts.numpy()
    agree = proposed[:, 1:] == chosen[:, :-1]
    agree &= np.arange(agree.shape[1]) < count[:, None]
    correct = np.logical_and.accumulate(agree, axis=1).sum(axis=1)
    padding = count < 0
    bonus.numpy()[...] = np.where(padding, 0, chosen[np.arange(len(count)), correct])
    correct = np.where(padding, -1, correct)
    correct_len.numpy()[...] = correct
    column = np.arange(accept_index.shape[1])
    accept_index.numpy()[...] = np.where(column <= correct[:, None], column, -1)


@register("token_ids")
def greedy_choice(token_ids: Tensor, logits: Tensor) -> None:
    """Set token_ids[t] to the id of the highest of logits [T,V], the lowest id on ties; NaN loses to every number."""
    values = (logits.float() if logits.dtype == torch.bfloat16 else logits).numpy()
    best = values.argmax(axis=-1)
    # numpy's argmax stops at the first NaN, so a row has one exactly if its best value is one.
    broken = np.isnan(values[np.arange(len(values)), best])
    if broken.any():
        for row in np.flatnonzero(broken):
            numbers = np.flatnonzero(~np.isnan(values[row]))
            best[row] = numbers[values[row, numbers].argmax()] if numbers.size else 0
    token_ids.numpy()[...] = best
