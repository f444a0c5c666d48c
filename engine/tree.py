"""The sizes of draft trees, and what their rows see of each other.

`B` rows of a launch, `W` verify width; a row's parent is a row before it, row 0 is the pending token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TreeConfig:
    """`topk` beams a draft step; the `nodes` best of their candidates are verified."""

    topk: int
    nodes: int

    def num_drafts(self, depth: int) -> int:
        """Return how many drafts a round of `depth` steps verifies."""
        return min(self.nodes, self.num_candidates(depth)) if depth else 0

    def num_candidates(self, depth: int) -> int:
        """Return how many candidates there are after `depth` steps."""
        return self.topk + (depth - 1) * self.topk * self.topk

    def num_columns(self, depth: int) -> int:
        """Return how many columns of the page table a round takes: its rows or its draft steps, whichever need more."""
        return max(self.num_drafts(depth) + 1, (depth - 1) * self.topk)


def seen(
    page_table: Tensor, req_rows: Tensor, seq_lens: Tensor, page_size: int, own: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the slots that rows of a tree see, -1 for none, and their `ages`; both [B * W, J].

    That are positions 0 .. seq_lens - 1 of their request, and their `own` [B, W, A]: of itself, its parent, and so on.
    """
    size, width, most = own.shape
    column = torch.arange(page_table.shape[1] * page_size, device=page_table.device)
    pages = page_table.index_select(0, req_rows).index_select(1, column // page_size)
    before = torch.where(column < seq_lens[:, None], pages * page_size + column % page_size, -1)
    slots = torch.cat([before[:, None].expand(-1, width, -1), own], dim=2)
    path = torch.arange(most, device=own.device).expand(size, width, -1)
    ages = torch.cat([positions[:, :, None] - column, path], dim=2)
    return slots.view(size * width, -1), ages.view(size * width, -1)


def above(parents: Tensor) -> Tensor:
    """Return the row above each row of a tree [B, W], -1 for row 0; `parents` [B, W - 1] are for rows 1, 2, .."""
    return torch.nn.functional.pad(parents, (1, 0), value=-1)


def ancestors(parents: Tensor, most: int) -> Tensor:
    """Return each row of a tree, then its parent, and so on: [B, W, most + 1], -1 after row 0.

    `parents` [B, W - 1] are for rows 1, 2, ..
    """
    known = above(parents)
    row = torch.arange(known.shape[1], device=known.device).expand_as(known)
    rows = [row]
    for _ in range(most):
        row = torch.where(row >= 0, known.gather(1, row.clamp(min=0)), -1)
        rows.append(row)
    return torch.stack(rows, dim=2)
