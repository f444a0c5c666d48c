"""Target verification of a chain of drafts, and greedy acceptance.

`B` rows of a launch, `W` verify width, `D` hidden width.
"""

from __future__ import annotations

import torch

from draftproof import kernels
from draftproof.engine.cache import PagedCache
from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts.base import Needs
from draftproof.engine.models.base import Target, VerifyRows, Where
from draftproof.engine.probes import Probes
from draftproof.engine.runner import Outputs, Views


class Verifier:
    """Runs the target over pending token and drafts; the function that verify graphs are made of."""

    def __init__(
        self, target: Target, cache: PagedCache, config: EngineConfig, probes: Probes, needs: Needs | None = None
    ) -> None:
        """`needs`: what a draft takes of the target's hidden states, by default the last ones."""
        self.target, self.cache, self._needs = target, cache, needs or Needs("last")
        self._config, self._taps = config, probes.taps

    def verify(self, views: Views) -> Outputs:
        """ids [B, W] and choice [B, W] of the target, correct [B] drafts accepted and bonus [B]; hidden [B, W, D] as
        the draft needs it."""
        rows, counts = views["rows"], views["counts"]
        ids = torch.cat([views["pending"].unsqueeze(1), views["drafts"]], dim=1)
        size, width = ids.shape
        positions, slots = torch.empty_like(ids), torch.empty_like(ids)
        kernels.assign_slots(
            positions,
            slots,
            self.cache.table,
            rows,
            views["positions"],
            counts,
            self.cache.page_size,
            self._config.max_len,
        )
        of_rows = rows[:, None].expand(size, width).reshape(-1)
        where = Where(of_rows, positions.view(-1), slots.view(-1), VerifyRows(views["states"], width))
        kept = self._needs.kept()
        hidden = self.target.forward(ids.view(-1), where, self.cache, kept)
        choice = self._choose(hidden)
        self._tap(ids, where, hidden, choice)
        choice = choice.view(size, width)
        correct, bonus = torch.empty_like(rows), torch.empty_like(rows)
        kernels.greedy_accept(correct, bonus, ids, choice, counts)
        outputs = {"ids": ids, "choice": choice, "correct": correct, "bonus": bonus}
        picked = self._needs.pick(hidden, kept)
        return outputs if picked is None else {**outputs, "hidden": picked.view(size, width, -1)}

    def prefill(self, ids: torch.Tensor, where: Where, last: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Packed prompt tokens [T]: hidden [T, D] as the draft needs it, and the choice [R] after the rows that `last`
        [R] selects."""
        kept = self._needs.kept()
        hidden = self.target.forward(ids, where, self.cache, kept)
        logits = self.target.logits(hidden.index_select(0, last))
        choice = torch.empty(last.shape[0], dtype=torch.int64, device=ids.device)
        kernels.greedy_choice(choice, logits)
        self._taps.record("prefill.choice", choice)
        self._taps.record_margin("prefill.margin", logits)
        return self._needs.pick(hidden, kept), choice

    def _choose(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = self.target.logits(hidden)
        choice = torch.empty(hidden.shape[0], dtype=torch.int64, device=hidden.device)
        kernels.greedy_choice(choice, logits)
        self._taps.record_margin("verify.margin", logits)
        return choice

    def _tap(self, ids: torch.Tensor, where: Where, hidden: torch.Tensor, choice: torch.Tensor) -> None:
        self._taps.record("verify.ids", ids)
        self._taps.record("verify.positions", where.positions)
        self._taps.record("verify.slots", where.slots)
        self._taps.record("verify.hidden", hidden)
        self._taps.record("verify.choice", choice)
