"""Naive twins of the integer decisions. `B` rows of a launch, `W` verify width, `T` tokens, `V` vocabulary."""

from torch import Tensor


def assign_slots(
    positions: Tensor,
    slot_mapping: Tensor,
    page_table: Tensor,
    req_rows: Tensor,
    seq_lens: Tensor,
    num_drafts: Tensor,
    page_size: int,
    max_len: int,
) -> None:
    """Fill positions and slot_mapping [B,W]: live up to num_drafts[b], then surplus; a negative number is padding."""
    entries = page_table.tolist()
    for r, (row, length, count) in enumerate(
        zip(req_rows.tolist(), seq_lens.tolist(), num_drafts.tolist(), strict=True)
    ):
        for i in range(positions.shape[1]):
            position, slot = length + i, 0
            if count < 0:
                position = 0
            elif i > count:
                position = min(position, max_len - 1)
            else:
                slot = _slot_of(entries, row, position, page_size)
            positions[r, i] = position
            slot_mapping[r, i] = slot


def _slot_of(entries: list[list[int]], row: int, position: int, page_size: int) -> int:
    """Return the slot that the page table gives to a position, or -1 if it gives none."""
    page = position // page_size
    if not 0 <= row < len(entries) or not 0 <= page < len(entries[row]) or entries[row][page] < 0:
        return -1
    return entries[row][page] * page_size + position % page_size


def greedy_accept(
    correct_len: Tensor,
    bonus: Tensor,
    accept_index: Tensor,
    input_ids: Tensor,
    target_tokens: Tensor,
    num_drafts: Tensor,
) -> None:
    """Set correct_len to the largest a <= num_drafts with d_i = y_{i-1} for all 1 <= i <= a, and bonus to y_a.

    A row of input_ids is t_n, d_1, .., d_K, one of target_tokens y_0, y_1, ..; one of accept_index 0, .., a, -1, ..
    """
    accept_index.fill_(-1)
    for r, count in enumerate(num_drafts.tolist()):
        if count < 0:
            correct_len[r], bonus[r] = -1, 0
            continue
        agreed = 0
        while agreed < min(count, input_ids.shape[1] - 1) and input_ids[r, agreed + 1] == target_tokens[r, agreed]:
            agreed += 1
        correct_len[r], bonus[r] = agreed, target_tokens[r, agreed]
        for row in range(agreed + 1):
            accept_index[r, row] = row


def greedy_choice(token_ids: Tensor, logits: Tensor) -> None:
    """Set token_ids[t] to the lowest id among the highest of logits [T,V]; NaN loses to numbers, 0 if all are NaN."""
    for t in range(logits.shape[0]):
        values = logits[t].tolist()
        numbers = [(-value, i) for i, value in enumerate(values) if value == value]
        token_ids[t] = min(numbers)[1] if numbers else 0
