"""KV slots as a worker is given them."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.engine.drafts.base import DraftContext, metadata_of_rows
from draftproof.engine.stages import DecodeRow


def step_slots(context: DraftContext, batch: tuple[DecodeRow, ...], steps: int) -> Tensor:
    """Return the slots [R, K] of each row's next positions; those behind its last draft are slot 0."""
    columns = [[row.req_row, row.seq_len, row.num_drafts - 2] for row in batch]
    req_rows, positions, last = torch.tensor(columns, dtype=torch.int64, device=context.device).T.contiguous()
    metadata = metadata_of_rows(context, req_rows, positions, last, steps)
    return metadata.slot_mapping.view(len(batch), steps)
