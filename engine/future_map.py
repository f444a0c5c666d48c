"""What a round hands on to the next one on the device, without the host: lengths and pending tokens.

`R` rows of requests, `B` rows of a launch. Source: SGLang's `FutureMap` and `new_seq_lens`, vLLM's
`prev_sampled_token_ids` (docs/semantics/overlap.md, S-OVERLAP-2).
"""

from __future__ import annotations

import torch
from torch import Tensor


class FutureMap:
    """seq_len and pending_token [R] of every request row, as the work that was given last leaves them."""

    def __init__(self, num_rows: int, max_len: int, device: torch.device) -> None:
        self.seq_len = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self.pending_token = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._max_len = max_len

    def begin(self, req_rows: Tensor, seq_lens: Tensor, tokens: Tensor) -> None:
        """Begin requests whose prompts have run and whose first tokens have been chosen."""
        self.seq_len[req_rows] = seq_lens
        self.pending_token[req_rows] = tokens

    def inputs(self, req_rows: Tensor, wanted: Tensor, last_contexts: Tensor) -> dict[str, Tensor]:
        """Return positions, pending_tokens and num_drafts [B] of a round that wants `wanted` drafts [B].

        No draft may stand behind last_contexts [B]. A request without a position left is padding.
        """
        seq_lens = self.seq_len[req_rows]
        fitting = torch.minimum(wanted, last_contexts - seq_lens).clamp(min=0)
        num_drafts = torch.where(seq_lens < self._max_len, fitting, -1)
        return {"positions": seq_lens, "pending_tokens": self.pending_token[req_rows], "num_drafts": num_drafts}

    def advance(self, req_rows: Tensor, correct_len: Tensor, bonus: Tensor) -> None:
        """Follow a round: correct_len and bonus [B]; of a row of padding these are -1 and nothing."""
        self.seq_len[req_rows] += correct_len + 1
        self.pending_token[req_rows] = torch.where(correct_len < 0, self.pending_token[req_rows], bonus)
