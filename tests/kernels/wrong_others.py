"""Wrong implementations of the ops that only other engines have, listed with the others (wrong.py)."""

import torch

from tests.kernels.wrong import after, takes, then

takes("extend_slots", "rows_in_the_order_of_the_batch", rows=lambda rows: rows.new_tensor(range(len(rows))))
after("uniform_slots", "one_slot_too_many", lambda slots, rows, count: slots[len(rows) * count].zero_())
takes(
    "bonus_tokens",
    "one_token_behind",
    accept_lens=lambda tokens, accept_lens: (accept_lens + 1).clamp(max=tokens.shape[1]),
)
takes("tree_accept", "first_child_only", next_sibling=lambda next_sibling: torch.full_like(next_sibling, -1))
after("draft_extend_inputs", "the_row_behind", lambda select: select.add_(1))
takes("rotate_ids", "always_at_the_end", select=lambda starts, lengths: starts + (lengths - 1).clamp(min=0))
takes("next_tokens", "discarded_rows_count", discard=lambda discard: torch.zeros_like(discard))
takes("expand_values", "nothing_is_replaced", new=lambda old: old)
takes("rejection_random", "strictly_less", uniform=lambda uniform: uniform + 2.0**-30)
takes("recovered_tokens", "of_the_target", draft_probs=lambda draft_probs: torch.zeros_like(draft_probs))
# The number of a node is its depth in a chain.
after(
    "build_tree",
    "depth_of_a_chain",
    lambda positions, seq_lens: positions.copy_(seq_lens[:, None] + torch.arange(positions.shape[1])),
)
after("build_tree", "siblings_are_seen", lambda mask: mask.copy_(torch.ones_like(mask).tril()))
takes(
    "step_slots",
    "past_the_end",
    max_len=lambda page_table, page_size, max_len: max_len + 1 if max_len < page_table.shape[1] * page_size else 1,
)


@then("sample_indices")
def without_drafts_too(indices, rejected, cu_drafts, valid, cu_tokens):
    counts = cu_drafts.diff(prepend=cu_drafts.new_zeros(1))
    rejected.copy_(counts + 1 - valid)
    indices.copy_(cu_tokens[1:] - 1 - (counts + 1 - valid) - (counts == 0).long())


@then("rejection_greedy")
def bonus_after_a_rejection(out, bonus, greedy):
    out[greedy.bool(), -1] = bonus[greedy.bool()]
