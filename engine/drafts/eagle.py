"""EAGLE with topk = 1: a chain of K proposals from a head that takes (token, hidden).

`B` rows of a launch, `W` verify width, `D` hidden width. Source: Li et al., "EAGLE" (2024); docs/semantics.md.
"""

from __future__ import annotations

import torch

from draftproof import kernels
from draftproof.engine.cache import PagedCache
from draftproof.engine.config import EngineConfig
from draftproof.engine.models.base import Head, Where
from draftproof.engine.probes import Probes
from draftproof.engine.runner import Outputs, Views


class Eagle:
    """The functions that graphs are made of; all state is in the buffers and the cache that they are given."""

    def __init__(self, head: Head, cache: PagedCache, config: EngineConfig, probes: Probes) -> None:
        self.head, self.cache = head, cache
        self._config, self._taps = config, probes.taps

    def propose(self, views: Views) -> Outputs:
        """Fill drafts [B, W-1]: the first is known from the last extend, each further one takes a forward.

        `positions` is advanced after each forward and left as it was found: verify reads it next.
        """
        drafts, positions, rows = views["drafts"], views["positions"], views["rows"]
        token, hidden = views["first"], views["hidden"]
        drafts[:, 0].copy_(token)
        steps = drafts.shape[1]
        for step in range(1, steps):
            where = self._slots(rows, positions, views["counts"], step)
            self._tap_inputs("draft", token, hidden, where, step)
            hidden = self.head.forward(token, hidden, where, self.cache)
            token = self._choose("draft", hidden, step)
            drafts[:, step].copy_(token)
            positions.add_(1)
        positions.sub_(steps - 1)
        return {"drafts": drafts}

    def extend(self, views: Views) -> Outputs:
        """Entries n .. n+a of every row from the target's states; the last gives the next first draft [B].

        `tokens` [B, W] are the target's choices, `correct` [B] the drafts accepted (a).
        """
        tokens, correct, rows = views["tokens"], views["correct"], views["rows"]
        size, width = tokens.shape
        positions, slots = torch.empty_like(tokens), torch.empty_like(tokens)
        kernels.assign_slots(
            positions,
            slots,
            self.cache.table,
            rows,
            views["positions"],
            correct,
            self.cache.page_size,
            self._config.max_len,
        )
        where = Where(rows[:, None].expand(size, width).reshape(-1), positions.view(-1), slots.view(-1))
        hidden = views["hidden"].view(size * width, -1)
        self._tap_inputs("extend", tokens.view(-1), hidden, where)
        handed = self.head.forward(tokens.view(-1), hidden, where, self.cache).view(size, width, -1)
        last = correct.clamp(min=0).view(size, 1, 1).expand(size, 1, handed.shape[2])
        state = handed.gather(1, last).view(size, -1)
        return {"first": self._choose("extend", state), "state": state}

    def extend_prompt(
        self, ids: torch.Tensor, hidden: torch.Tensor, where: Where, last: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Entries of prompt tokens, packed: ids [T] shifted by one, the target's hidden [T, D]; `last` [R] selects the
        rows that propose. Returns first drafts [R] and handed-on states [R, D]."""
        self._tap_inputs("prompt", ids, hidden, where)
        state = self.head.forward(ids, hidden, where, self.cache).index_select(0, last)
        return self._choose("prompt", state), state

    def _slots(self, rows: torch.Tensor, positions: torch.Tensor, counts: torch.Tensor, step: int) -> Where:
        """Rows with fewer drafts than this step's are surplus: slot 0."""
        return self.place(rows, positions, torch.where(counts > step, 0, -1))

    def place(self, rows: torch.Tensor, positions: torch.Tensor, counts: torch.Tensor) -> Where:
        """One token a row, at its position, if its count is 0; otherwise (-1) it belongs nowhere: slot 0."""
        at, slots = torch.empty_like(positions), torch.empty_like(positions)
        kernels.assign_slots(
            at.unsqueeze(1),
            slots.unsqueeze(1),
            self.cache.table,
            rows,
            positions,
            counts,
            self.cache.page_size,
            self._config.max_len,
        )
        return Where(rows, at, slots)

    def _choose(self, name: str, state: torch.Tensor, step: int = -1) -> torch.Tensor:
        logits = self.head.logits(state)
        token = torch.empty(state.shape[0], dtype=torch.int64, device=state.device)
        kernels.greedy_choice(token, logits)
        self._taps.record(f"{name}.proposal", token, step)
        self._taps.record_margin(f"{name}.margin", logits, step)
        return token

    def _tap_inputs(self, name: str, ids: torch.Tensor, hidden: torch.Tensor, where: Where, step: int = -1) -> None:
        self._taps.record(f"{name}.ids", ids, step)
        self._taps.record(f"{name}.positions", where.positions, step)
        self._taps.record(f"{name}.slots", where.slots, step)
        self._taps.record(f"{name}.hidden", hidden, step)
