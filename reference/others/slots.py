"""Naive twins of ops that hand out slots and tokens. `B` rows of a launch, `R` requests, `J` positions."""

from __future__ import annotations

from torch import Tensor


def extend_slots(slots: Tensor, table: Tensor, rows: Tensor, starts: Tensor, ends: Tensor) -> None:
    """List table[rows[b], p] of [R,J] for positions starts[b] <= p < ends[b] of each request b, one after another."""
    place = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        for position in range(start, end):
            slots[place] = table[row, position]
            place += 1


def uniform_slots(slots: Tensor, table: Tensor, rows: Tensor, starts: Tensor, count: int) -> None:
    """List `count` slots of each request from its position starts[b] on, one request after another."""
    for b, (row, start) in enumerate(zip(rows.tolist(), starts.tolist(), strict=True)):
        for i in range(count):
            slots[b * count + i] = table[row, start + i]


def bonus_tokens(bonus: Tensor, tokens: Tensor, accept_lens: Tensor) -> None:
    """Set bonus[b] to the last of the accept_lens[b] accepted tokens [B,A], the bonus included."""
    for b, count in enumerate(accept_lens.tolist()):
        bonus[b] = tokens[b, count - 1]
