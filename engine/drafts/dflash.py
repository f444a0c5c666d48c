"""DFlash: a block of masked tokens filled in by one bidirectional pass over features of the context.

The context entry of a position is made of the outputs of chosen layers of the target there. A round's block has the
pending token and K masked ones; each of its rows sees the whole context and the whole block. What the block leaves in
the slots of its positions is overwritten by the features of what was accepted, and never read otherwise.
`B` rows of a launch, `W` verify width (and the most rows of a block), `Df` width of the features.
Source: sgl-project/sglang#25029; docs/semantics.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from draftproof.engine.cache import PagedCache
from draftproof.engine.drafts.base import Accepted, Draft, Lent, Needs, Shapes, place_rows
from draftproof.engine.models.base import Block, CacheShape, Where
from draftproof.engine.models.probe import ProbeParts
from draftproof.engine.models.probe_dflash import ProbeBlock
from draftproof.engine.runner import Outputs, Views
from draftproof.engine.stages import Launch, PrefillRow


class DFlashDraft(Draft[Block]):
    """A `Draft`."""

    def __init__(self, model: Block, lent: Lent) -> None:
        super().__init__(model, lent)
        assert lent.cache is not None
        self.cache: PagedCache = lent.cache
        self.proposer, self.extenders = self.block, (self.extend,)

    @classmethod
    def needed(cls, model: Block) -> Needs:
        """The outputs of the layers that the model was made for."""
        return Needs("layers", model.features)

    @classmethod
    def entries(cls, model: Block) -> CacheShape:
        """Those of its layers."""
        return model.cache_shape

    def weights(self) -> tuple[torch.Tensor, ...]:
        """The model's."""
        return self.model.weights()

    def block(self, views: Views) -> Outputs:
        """Fill drafts [B, W-1] from a block of the pending token and as many masked ones as the row has drafts.

        A row without drafts has no block; rows beyond a block are surplus.
        """
        drafts, rows, counts = views["drafts"], views["rows"], views["counts"]
        size, width = drafts.shape[0], drafts.shape[1] + 1
        ids = torch.full((size, width), self.model.mask, dtype=torch.int64, device=drafts.device)
        ids[:, 0].copy_(views["pending"])
        taking_part = torch.where(counts > 0, counts, -1)
        where = place_rows(self.lent, rows, views["positions"], taking_part, width)
        last = views["positions"] + counts.clamp(min=0)
        where = replace(where, visible=last[:, None].expand(size, width).reshape(-1))
        self.tapping.inputs("block", where, ids.view(-1), None)
        states = self.model.forward(ids, where, self.cache)
        tokens = self.tapping.choose("block", self.model.logits(states))
        drafts.copy_(tokens.view(size, width)[:, 1:])
        return {"drafts": drafts}

    def extend_inputs(self, width: int) -> Shapes:
        """rows [B], positions [B], correct [B] and hidden [B, W, Df]."""
        features = self.needs.width(self.lent.target)
        ints: Shapes = dict.fromkeys(("rows", "positions", "correct"), ((), torch.int64))
        return ints | {"hidden": ((width, features), self.lent.target.hidden_dtype)}

    def extend_values(self, accepted: Accepted) -> Mapping[str, torch.Tensor]:
        """The features of all rows that were verified: what is committed are the first a + 1."""
        assert accepted.hidden is not None
        return {
            "rows": accepted.rows,
            "positions": accepted.positions,
            "correct": accepted.correct,
            "hidden": accepted.hidden,
        }

    def extend(self, views: Views) -> Outputs:
        """Context entries n .. n+a of every row."""
        hidden, correct = views["hidden"], views["correct"]
        size, width = hidden.shape[:2]
        where = place_rows(self.lent, views["rows"], views["positions"], correct, width)
        features = hidden.view(size * width, -1)
        self.tapping.inputs("extend", where, None, features)
        self.model.append(features, where, self.cache)
        return {}

    def prompt(
        self, batch: tuple[PrefillRow, ...], where: Where, hidden: torch.Tensor | None, chosen: Sequence[int]
    ) -> None:
        """Context entries of the prompt."""
        assert hidden is not None
        probes = self.lent.probes
        probes.before_launch("extend_prompt")
        self.tapping.inputs("prompt", where, None, hidden)
        self.model.append(hidden, where, self.cache)
        probes.launched(Launch("extend_prompt", 0, len(batch), 0))


def probe(spec: Any, parts: ProbeParts) -> ProbeBlock:
    """Return the model of a probe's draft, built from its specification."""
    return ProbeBlock(parts.weights, parts.shape, parts.logit_bits, spec.features)


ALGORITHM = DFlashDraft
