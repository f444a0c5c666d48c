"""Wrong implementations of the ops that only other engines have: (op, what is wrong, implementation)."""

from collections.abc import Callable

from torch import Tensor

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


WRONG: list[tuple[str, str, Callable[..., None]]] = [
    ("extend_slots", "rows in the order of the batch", _in_batch_order),
    ("uniform_slots", "one slot too many", _one_too_many),
    ("bonus_tokens", "one token behind", _one_behind),
]
