"""The sizes of draft trees, and what their rows see of each other.

`B` rows of a launch, `W` verify width; a row's parent is a row before it, row 0 is the pending token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from msgspec.structs import replace
from torch import Tensor

from draftproof.engine.models.base import AttentionMetadata

T = TypeVar("T", int, Tensor)


@dataclass(frozen=True)
class TreeConfig:
    """`topk` beams a draft step; the `nodes` best of their candidates are verified."""

    topk: int
    nodes: int

    def num_drafts(self, depth: int) -> int:
        """Return how many drafts a round of `depth` steps verifies."""
        return min(self.nodes, self.num_candidates(depth)) if depth > 0 else depth

    def counts(self, depths: Tensor) -> Tensor:
        """Return num_drafts of each depth; a row of padding has no depth (-1)."""
        return torch.where(depths > 0, self.num_candidates(depths).clamp(max=self.nodes), depths)

    def num_candidates(self, depth: T) -> T:
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
    return slots.flatten(0, 1), ages.flatten(0, 1)


def along(rows: Tensor | None, places: Tensor) -> Tensor:
    """Return the rows [B] that are at `places` [B] of paths [B, P]; of a chain these are the places. -1 stays."""
    if rows is None:
        return places
    return torch.where(places >= 0, rows.gather(1, places.clamp(min=0)[:, None])[:, 0], -1)


def above(parents: Tensor) -> Tensor:
    """Return the row above each row of a tree [B, W], -1 for row 0; `parents` [B, W - 1] are for rows 1, 2, .."""
    return torch.nn.functional.pad(parents, (1, 0), value=-1)


def ancestors(known: Tensor, most: int) -> Tensor:
    """Return each row, then the row above it, and so on: [B, W, most + 1], -1 after a row with none above it.

    `known` [B, W] are the rows above, as `above` returns them.
    """
    row = torch.arange(known.shape[1], device=known.device).expand_as(known)
    rows = [row]
    for _ in range(most):
        row = torch.where(row >= 0, known.gather(1, row.clamp(min=0)), -1)
        rows.append(row)
    return torch.stack(rows, dim=2)


def branched(
    flat: AttentionMetadata, known: Tensor, contexts: Tensor, page_table: Tensor, page_size: int, most: int
) -> AttentionMetadata:
    """Return where rows [B, W] of `flat` are that go on from `contexts` [B, W] entries and from the rows above them.

    At most `most` rows are above one; `flat` has the column of each as its position. A row without a context (-1) is
    where it was.
    """
    rows = ancestors(known, most)
    depth = (rows >= 0).sum(dim=2) - 1
    positions = torch.where(contexts >= 0, contexts + depth, flat.positions.view_as(known))
    slots = flat.slot_mapping.view_as(known)[:, :, None].expand(-1, -1, rows.shape[2])
    own = torch.where(rows >= 0, slots.gather(1, rows.clamp(min=0)), -1).flatten(0, 1)[:, None]
    context = (page_table, flat.req_rows, contexts.flatten(), page_size)
    visible_slots, ages = seen(*context, own, positions.view(-1, 1))
    return replace(flat, positions=positions.flatten(), visible_slots=visible_slots, ages=ages)
