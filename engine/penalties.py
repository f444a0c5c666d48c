"""Penalties: what a request's text so far takes off its logits or adds to them, kept on the device by request row.

`B` rows of a launch, `W` verify width, `V` vocabulary. Counts are of prompt and output apart, as in vLLM's
`apply_penalties`; the drafts before a row are counted by the kernel that applies them, and never kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from draftproof import kernels
from draftproof.engine.arena import Arena
from draftproof.engine.penalty_params import NONE, PENALTY_INPUTS
from draftproof.engine.stages import Commit, PrefillRow


def shapes(num_rows: int, vocabulary: int) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Return the tensors of the arena that tables take."""
    names = ("penalty.prompt", "penalty.output", "penalty.bias")
    return dict.fromkeys(names, ((num_rows, vocabulary), torch.int64))


class PenaltyTables:
    """Of every request row how often each token is in the prompt and in the output, and its bias."""

    def __init__(self, arena: Arena, logit_units: int) -> None:
        """Amounts are in units; `logit_units` of them make a logit, 1 for a probe, whose logits are whole numbers."""
        self._logit_units = logit_units
        self._prompt, self._output, self._bias = (arena[f"penalty.{name}"] for name in ("prompt", "output", "bias"))

    def begin(self, batch: Sequence[PrefillRow]) -> None:
        """Begin the rows of requests that were admitted: nothing of a row's former request stays."""
        rows = self._tensor([row.req_row for row in batch])
        for table in (self._prompt, self._output, self._bias):
            table.index_fill_(0, rows, 0)
        self._count(self._prompt, [(row.req_row, token) for row in batch for token in row.request.prompt])
        self._count(self._output, [(row.req_row, token) for row in batch for token in row.emitted])
        biases = [(row.req_row, *one) for row in batch for one in (row.request.penalties or NONE).bias]
        at, tokens, amounts = (self._tensor([one[place] for one in biases]) for place in range(3))
        self._bias.index_put_((at, tokens), amounts)

    def advance(self, commits: Sequence[Commit]) -> None:
        """Count the tokens that requests gained, and no draft that was rejected."""
        self._count(self._output, [(commit.req_row, token) for commit in commits for token in commit.emitted])

    def advance_by(self, req_rows: Tensor, tokens: Tensor, correct_len: Tensor) -> None:
        """Count the first correct_len + 1 of the tokens [B, W] that requests gained; of a row of padding that is 0."""
        gained = torch.arange(tokens.shape[1], device=tokens.device) <= correct_len[:, None]
        rows = req_rows[:, None].expand_as(tokens)
        self._output.index_put_((rows, tokens), gained.to(self._output.dtype), accumulate=True)

    def apply(
        self, logits: Tensor, ids: Tensor, parents: Tensor, req_rows: Tensor, inputs: Mapping[str, Tensor]
    ) -> Tensor:
        """Return logits [B * W, V], penalised for the text up to each row of ids [B, W].

        The text of a row is its request's text, and the ids of the rows from the row itself up to row 0, which is left
        out: its token is counted. `parents` [B, W] are the rows above, -1 for row 0.
        """
        whole = self._whole(logits)
        before = whole.clone()
        kernels.apply_penalties(
            whole.view(*ids.shape, whole.shape[1]),
            ids,
            parents,
            req_rows,
            self._prompt,
            self._output,
            self._bias,
            *(inputs[name] for name in PENALTY_INPUTS),
        )
        if self._logit_units == 1:
            return whole
        return torch.where(whole == before, logits, (whole.double() / self._logit_units).to(logits.dtype))

    def _whole(self, logits: Tensor) -> Tensor:
        """Return logits in units, rounded to whole numbers."""
        if self._logit_units == 1:
            return logits.to(torch.int64)
        return (logits.double() * self._logit_units).round().to(torch.int64)

    def _count(self, table: Tensor, places: Sequence[tuple[int, int]]) -> None:
        rows, tokens = (self._tensor([one[place] for one in places]) for place in range(2))
        table.index_put_((rows, tokens), torch.ones_like(rows), accumulate=True)

    def _tensor(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._prompt.device)
