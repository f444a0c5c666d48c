"""Naive twins of ops between verify and the next draft. `B` rows of a launch, `W` verify width, `R` requests."""

from __future__ import annotations

from torch import Tensor


def draft_extend_inputs(
    correct_len: Tensor, select: Tensor, ids: Tensor, accept_lens: Tensor, predict: Tensor, width: int
) -> None:
    """Set what a fixed-width extend after verify runs on: all rows, with the last accepted of each request selected."""
    for b, count in enumerate(accept_lens.tolist()):
        correct_len[b] = count - 1
        select[b] = b * width + count - 1
    for t, token in enumerate(predict.tolist()):
        ids[t] = token


def rotate_ids(ids: Tensor, starts: Tensor, lengths: Tensor, tokens: Tensor, select: Tensor) -> None:
    """Move the ids of each request's window one to the left, then put its new token at place select[b].

    The last id of a window stays where the new token is put elsewhere. A window of no token is left alone.
    """
    for b, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        if length:
            window = ids[start : start + length].tolist()
            for i, token in enumerate(window[1:]):
                ids[start + i] = token
            ids[int(select[b])] = tokens[b]


def sample_indices(indices: Tensor, rejected: Tensor, cu_drafts: Tensor, valid: Tensor, cu_tokens: Tensor) -> None:
    """Find each request's last row that holds: a row for each draft and one before; valid[b] of them were right.

    cu_drafts [B] ends each request's drafts, cu_tokens [B+1] begins its rows. A request without drafts keeps all.
    """
    drafts = [end - begin for begin, end in zip([0, *cu_drafts.tolist()], cu_drafts.tolist(), strict=False)]
    for b, count in enumerate(drafts):
        wrong = count + 1 - int(valid[b]) if count else 0
        rejected[b] = wrong
        indices[b] = int(cu_tokens[b + 1]) - 1 - wrong


def next_tokens(next: Tensor, valid: Tensor, sampled: Tensor, discard: Tensor, backup: Tensor, vocabulary: int) -> None:
    """Set next[b] to the last token of sampled [B,W] that is one, valid[b] to how many are; -1 is none.

    A discarded row, or one without any, gets backup[b]; a discarded one has 0.
    """
    for b, row in enumerate(sampled.tolist()):
        tokens = [] if discard[b] else [token for token in row if 0 <= token < vocabulary]
        valid[b] = len(tokens)
        next[b] = tokens[-1] if tokens else backup[b]


def step_slots(
    positions: Tensor,
    slots: Tensor,
    seq_lens: Tensor,
    before: Tensor,
    page_table: Tensor,
    page_size: int,
    max_len: int,
) -> None:
    """Advance each request by one position, with its slot; past max_len to position 0, slot -1 and length 1.

    Rows of `slots` beyond the requests are padding: -1.
    """
    for b in range(slots.shape[0]):
        if b >= before.shape[0]:
            slots[b] = -1
            continue
        position = int(before[b]) + 1
        if position >= max_len:
            positions[b], slots[b], seq_lens[b] = 0, -1, 1
            continue
        positions[b] = position
        slots[b] = int(page_table[b, position // page_size]) * page_size + position % page_size
        seq_lens[b] = min(int(seq_lens[b]) + 1, max_len)


def expand_values(out: Tensor, values: Tensor, cu_tokens: Tensor, old: int, new: int) -> None:
    """Repeat values[b], `new` in place of `old`, for each token of request b; cu_tokens [B] ends them."""
    begin = 0
    for b, end in enumerate(cu_tokens.tolist()):
        for t in range(begin, end):
            out[t] = new if int(values[b]) == old else values[b]
        begin = end
