"""Wrong implementations of the ops that only other engines have: (op, what is wrong, implementation)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from draftproof.reference.others import rounds, sampling, trees
from draftproof.reference.others import slots as right


def _in_batch_order(slots: Tensor, table: Tensor, rows: Tensor, starts: Tensor, ends: Tensor) -> None:
    """Take the place in the batch for the row of the table."""
    right.extend_slots(slots, table, rows.clone().copy_(rows.new_tensor(range(len(rows)))), starts, ends)


def _one_too_many(slots: Tensor, table: Tensor, rows: Tensor, starts: Tensor, count: int) -> None:
    """Write one slot behind the last."""
    right.uniform_slots(slots, table, rows, starts, count)
    slots[len(rows) * count] = 0


def _one_behind(bonus: Tensor, tokens: Tensor, accept_lens: Tensor) -> None:
    """Take the length for the place of the last token."""
    right.bonus_tokens(bonus, tokens, (accept_lens + 1).clamp(max=tokens.shape[1]))


def _depth_of_number(positions: Tensor, retrieve_index: Tensor, *others: Any) -> None:
    """Take the number of a node for its depth: right for chains."""
    trees.build_tree(positions, retrieve_index, *others)
    positions.copy_(others[5][:, None] + torch.arange(positions.shape[1]))


def _sees_siblings(positions: Tensor, retrieve_index: Tensor, *others: Any) -> None:
    """Let a node see all before it."""
    trees.build_tree(positions, retrieve_index, *others)
    others[2].copy_(torch.ones_like(others[2]).tril())


def _first_child_only(*arguments: Tensor) -> None:
    """Try no sibling."""
    trees.tree_accept(*arguments[:5], torch.full_like(arguments[5], -1), arguments[6])


def _selects_next(*arguments: Any) -> None:
    """Select the row behind the last accepted one."""
    rounds.draft_extend_inputs(*arguments)
    arguments[1].add_(1)


def _at_the_end(ids: Tensor, starts: Tensor, lengths: Tensor, tokens: Tensor, select: Tensor) -> None:
    """Put the new token at the end, wherever it should go."""
    rounds.rotate_ids(ids, starts, lengths, tokens, starts + (lengths - 1).clamp(min=0))


def _without_drafts_too(indices: Tensor, rejected: Tensor, drafts: Tensor, valid: Tensor, tokens: Tensor) -> None:
    """Subtract where there were no drafts, too."""
    counts = drafts.diff(prepend=drafts.new_zeros(1))
    rejected.copy_(counts + 1 - valid)
    indices.copy_(tokens[1:] - 1 - (counts + 1 - valid) - (counts == 0).long())


def _ignores_discards(*arguments: Any) -> None:
    """Take the tokens of discarded rows for valid."""
    rounds.next_tokens(*arguments[:3], torch.zeros_like(arguments[3]), *arguments[4:])


def _past_the_end(*arguments: Any) -> None:
    """Go on behind the last position."""
    rounds.step_slots(*arguments[:6], arguments[6] + 1 if arguments[6] < arguments[4].shape[1] * arguments[5] else 1)


def _keeps_old(out: Tensor, values: Tensor, cu_tokens: Tensor, old: int, new: int) -> None:
    """Replace nothing."""
    rounds.expand_values(out, values, cu_tokens, old, old)


def _bonus_always(*arguments: Tensor) -> None:
    """Append the bonus after a rejection, too."""
    sampling.rejection_greedy(*arguments)
    arguments[0][arguments[5].bool(), -1] = arguments[4][arguments[5].bool()]


def _strictly_less(*arguments: Tensor) -> None:
    """Reject where p / q is the random number itself."""
    sampling.rejection_random(*arguments[:7], arguments[7] + 2.0**-30, arguments[8])


def _of_the_target(*arguments: Tensor) -> None:
    """Draw from the target, not from what it has more of."""
    sampling.recovered_tokens(*arguments[:3], torch.zeros_like(arguments[3]), *arguments[4:])


WRONG: list[tuple[str, str, Callable[..., None]]] = [
    ("extend_slots", "rows in the order of the batch", _in_batch_order),
    ("uniform_slots", "one slot too many", _one_too_many),
    ("bonus_tokens", "one token behind", _one_behind),
    ("build_tree", "depth of a chain", _depth_of_number),
    ("build_tree", "siblings are seen", _sees_siblings),
    ("tree_accept", "first child only", _first_child_only),
    ("draft_extend_inputs", "the row behind", _selects_next),
    ("rotate_ids", "always at the end", _at_the_end),
    ("sample_indices", "without drafts too", _without_drafts_too),
    ("next_tokens", "discarded rows count", _ignores_discards),
    ("step_slots", "past the end", _past_the_end),
    ("expand_values", "nothing is replaced", _keeps_old),
    ("rejection_greedy", "bonus after a rejection", _bonus_always),
    ("rejection_random", "strictly less", _strictly_less),
    ("recovered_tokens", "of the target", _of_the_target),
]
