"""EAGLE with topk = 1: a chain of K proposals from a head that takes (token, hidden).

`B` rows of a launch, `W` verify width, `D` hidden width. Source: Li et al., "EAGLE" (2024); docs/semantics.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from draftproof.engine.cache import PagedCache
from draftproof.engine.drafts.base import Accepted, Draft, Lent, Needs, Shapes, place, place_rows
from draftproof.engine.models.base import CacheShape, Head, Target, Where
from draftproof.engine.models.probe import ProbeHead, ProbeParts
from draftproof.engine.runner import Outputs, Views
from draftproof.engine.stages import Launch, PrefillRow


class EagleDraft(Draft[Head]):
    """A `Draft`. Each request's first draft and handed-on state are known from its last extend."""

    token_memory = ("first",)

    def __init__(self, model: Head, lent: Lent) -> None:
        super().__init__(model, lent)
        assert lent.cache is not None
        self.cache: PagedCache = lent.cache
        self.proposer, self.extenders = self.steps, (self.extend,)

    @classmethod
    def needed(cls, model: Head) -> Needs:
        """The state after the target's final norm."""
        return Needs("last")

    @classmethod
    def entries(cls, model: Head) -> CacheShape:
        """Those of the head's one layer."""
        return model.cache_shape

    @classmethod
    def memory(cls, model: Head, target: Target, rows: int) -> Shapes:
        """The first draft of the next round, and what stands in for the hidden state that it needs."""
        return {"first": ((rows,), torch.int64), "state": ((rows, target.width), target.hidden_dtype)}

    def weights(self) -> tuple[torch.Tensor, ...]:
        """The head's."""
        return self.model.weights()

    def round_inputs(self) -> Shapes:
        """first [B] and hidden [B, D]."""
        target = self.lent.target
        return {"first": ((), torch.int64), "hidden": ((target.width,), target.hidden_dtype)}

    def round_values(self, rows: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """As the last extend left them."""
        return {"first": self.lent.arena["first"][rows], "hidden": self.lent.arena["state"][rows]}

    def steps(self, views: Views) -> Outputs:
        """Fill drafts [B, W-1]: the first is known from the last extend, each further one takes a forward.

        `positions` is advanced after each forward and left as it was found: verify reads it next.
        """
        drafts, positions, rows = views["drafts"], views["positions"], views["rows"]
        token, hidden = views["first"], views["hidden"]
        drafts[:, 0].copy_(token)
        steps = drafts.shape[1]
        for step in range(1, steps):
            where = self._slots(rows, positions, views["counts"], step)
            self.tapping.inputs("draft", where, token, hidden, step)
            hidden = self.model.forward(token, hidden, where, self.cache)
            token = self.tapping.choose("draft", self.model.logits(hidden), step)
            drafts[:, step].copy_(token)
            positions.add_(1)
        positions.sub_(steps - 1)
        return {"drafts": drafts}

    def extend_inputs(self, width: int) -> Shapes:
        """positions [B], correct [B], tokens [B, W] and hidden [B, W, D]."""
        target = self.lent.target
        ints = {"rows": (), "positions": (), "correct": (), "tokens": (width,)}
        states = {"hidden": ((width, target.width), target.hidden_dtype)}
        return {name: (shape, torch.int64) for name, shape in ints.items()} | states

    def extend_values(self, accepted: Accepted) -> Mapping[str, torch.Tensor]:
        """The target's choices are the tokens of the entries."""
        assert accepted.hidden is not None
        return {
            "rows": accepted.rows,
            "positions": accepted.positions,
            "correct": accepted.correct,
            "tokens": accepted.choice,
            "hidden": accepted.hidden,
        }

    def extend(self, views: Views) -> Outputs:
        """Entries n .. n+a of every row from the target's states; the last gives the next first draft [B].

        `tokens` [B, W] are the target's choices, `correct` [B] the drafts accepted (a).
        """
        tokens, correct, rows = views["tokens"], views["correct"], views["rows"]
        size, width = tokens.shape
        where = place_rows(self.lent, rows, views["positions"], correct, width)
        hidden = views["hidden"].view(size * width, -1)
        self.tapping.inputs("extend", where, tokens.view(-1), hidden)
        handed = self.model.forward(tokens.view(-1), hidden, where, self.cache).view(size, width, -1)
        last = correct.clamp(min=0).view(size, 1, 1).expand(size, 1, handed.shape[2])
        state = handed.gather(1, last).view(size, -1)
        return {"first": self.tapping.choose("extend", self.model.logits(state)), "state": state}

    def keep(self, accepted: Accepted, outputs: tuple[Outputs, ...]) -> None:
        """Each request's first draft and handed-on state for its next round."""
        self._remember(accepted.rows, outputs[0]["first"], outputs[0]["state"])

    def _remember(self, rows: torch.Tensor, first: torch.Tensor, state: torch.Tensor) -> None:
        self.lent.arena["first"][rows] = first
        self.lent.arena["state"][rows] = state

    def prompt(
        self, batch: tuple[PrefillRow, ...], where: Where, hidden: torch.Tensor | None, chosen: Sequence[int]
    ) -> None:
        """Entries of prompt tokens shifted by one; after the last one comes the next of the prompt, or the chosen."""
        assert hidden is not None
        tails = [row.tail if row.tail >= 0 else token for row, token in zip(batch, chosen, strict=True)]
        shifted = [(*row.ids[1:], tail) for row, tail in zip(batch, tails, strict=True)]
        device, probes = self.lent.device, self.lent.probes
        ids = torch.tensor([token for row in shifted for token in row], dtype=torch.int64, device=device)
        ends = torch.tensor([len(row.ids) for row in batch], device=device).cumsum(0) - 1
        probes.before_launch("extend_prompt")
        self.tapping.inputs("prompt", where, ids, hidden)
        state = self.model.forward(ids, hidden, where, self.cache).index_select(0, ends)
        first = self.tapping.choose("prompt", self.model.logits(state))
        probes.launched(Launch("extend_prompt", 0, len(batch), 0))
        self._remember(torch.tensor([row.row for row in batch], device=device), first, state)

    def _slots(self, rows: torch.Tensor, positions: torch.Tensor, counts: torch.Tensor, step: int) -> Where:
        """Rows with fewer drafts than this step's are surplus: slot 0."""
        return place(self.lent, rows, positions, torch.where(counts > step, 0, -1))


def probe(spec: Any, parts: ProbeParts) -> ProbeHead:
    """Return the model of a probe's draft, built from its specification."""
    return ProbeHead(parts.weights, parts.config, parts.shape, parts.logit_bits)


ALGORITHM = EagleDraft
