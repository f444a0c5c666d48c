"""A smaller language model as the draft: entries and positions of its own, no hidden state of anybody else.

Its entry i is the token at position i. A round takes K forwards, from the pending token on; the extend then computes
the entries of everything that was committed, so that there is none of a rejected token, and none missing after a round
that accepted everything.
`B` rows of a launch, `W` verify width. Source: Leviathan et al., "Fast Inference from Transformers via Speculative
Decoding" (2023); docs/semantics.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from draftproof.engine.cache import PagedCache
from draftproof.engine.drafts.base import Accepted, Draft, Lent, Shapes, place, place_rows
from draftproof.engine.models.base import CacheShape, Target, Where
from draftproof.engine.models.probe import ProbeParts, standalone
from draftproof.engine.runner import Outputs, Views
from draftproof.engine.stages import Launch, PrefillRow


class StandaloneDraft(Draft[Target]):
    """A `Draft`."""

    def __init__(self, model: Target, lent: Lent) -> None:
        super().__init__(model, lent)
        assert lent.cache is not None
        self.cache: PagedCache = lent.cache
        self.proposer, self.extenders = self.steps, (self.extend,)

    @classmethod
    def entries(cls, model: Target) -> CacheShape:
        """Those of its layers. Raises ValueError for a model with recurrent states."""
        if model.state_shape is not None:
            raise ValueError("layer_types of a standalone draft has 'linear_attention'; allowed: 'full_attention'")
        return model.cache_shape

    def weights(self) -> tuple[torch.Tensor, ...]:
        """The model's."""
        return self.model.weights()

    def steps(self, views: Views) -> Outputs:
        """Fill drafts [B, W-1]: forward k runs the token at position n + k - 1 and gives draft k.

        `positions` is advanced after each forward and left as it was found: verify reads it next.
        """
        drafts, positions, rows = views["drafts"], views["positions"], views["rows"]
        token, steps = views["pending"], drafts.shape[1]
        for step in range(1, steps + 1):
            where = place(self.lent, rows, positions, torch.where(views["counts"] >= step, 0, -1))
            self.tapping.inputs("draft", where, token, None, step)
            state = self.model.forward(token, where, self.cache)
            token = self.tapping.choose("draft", self.model.logits(state), step)
            drafts[:, step - 1].copy_(token)
            positions.add_(1)
        positions.sub_(steps)
        return {"drafts": drafts}

    def extend_inputs(self, width: int) -> Shapes:
        """rows [B], positions [B], correct [B] and ids [B, W]."""
        shapes: dict[str, tuple[int, ...]] = {"rows": (), "positions": (), "correct": (), "ids": (width,)}
        return {name: (shape, torch.int64) for name, shape in shapes.items()}

    def extend_values(self, accepted: Accepted) -> Mapping[str, torch.Tensor]:
        """The tokens that were verified: what is committed are the first a + 1."""
        return {
            "rows": accepted.rows,
            "positions": accepted.positions,
            "correct": accepted.correct,
            "ids": accepted.ids,
        }

    def extend(self, views: Views) -> Outputs:
        """Entries n .. n+a of every row."""
        ids, correct = views["ids"], views["correct"]
        where = place_rows(self.lent, views["rows"], views["positions"], correct, ids.shape[1])
        self.tapping.inputs("extend", where, ids.view(-1), None)
        self.model.forward(ids.view(-1), where, self.cache)
        return {}

    def prompt(
        self, batch: tuple[PrefillRow, ...], where: Where, hidden: torch.Tensor | None, chosen: Sequence[int]
    ) -> None:
        """Entries of the prompt's own tokens, at their own positions."""
        probes = self.lent.probes
        ids = torch.tensor([token for row in batch for token in row.ids], dtype=torch.int64, device=self.lent.device)
        probes.before_launch("extend_prompt")
        self.tapping.inputs("prompt", where, ids, None)
        self.model.forward(ids, where, self.cache)
        probes.launched(Launch("extend_prompt", 0, len(batch), 0))


def probe(spec: Any, parts: ProbeParts) -> Target:
    """Return the model of a probe's draft, built from its specification."""
    return standalone(parts.weights, parts.shape, parts.logit_bits)


ALGORITHM = StandaloneDraft
