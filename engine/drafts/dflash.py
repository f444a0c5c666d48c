"""DFlash: a block of masked tokens filled in by one bidirectional pass over features of the context.

The context entry of a position is made of the outputs of chosen layers of the target there. A round's block has the
pending token and K masked ones; each of its rows sees the whole context and the whole block. What the block leaves in
the slots of its positions is overwritten by the features of what was accepted, and never read otherwise.
`B` rows of a launch, `W` verify width (and the most rows of a block), `Df` width of the features.
Source: sgl-project/sglang#25029; docs/semantics/dflash.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from msgspec.structs import replace
from torch import Tensor

from draftproof.engine.drafts.base import (
    Accepted,
    DraftContext,
    ModelDraft,
    Needs,
    PromptChunks,
    Shapes,
    metadata_of_rows,
)
from draftproof.engine.models.base import Block
from draftproof.engine.models.probe import ProbeParts
from draftproof.engine.models.probe_dflash import ProbeBlock
from draftproof.engine.runner import Outputs, Views
from draftproof.engine.stages import Launch


class DFlashDraft(ModelDraft[Block]):
    """A `Draft`."""

    def __init__(self, model: Block, context: DraftContext) -> None:
        super().__init__(model, context)
        self.proposer, self.extenders = self.block, (self.extend,)

    @classmethod
    def needed(cls, model: Block) -> Needs:
        """Return the layers that the model was made for."""
        return Needs("layers", model.features)

    def block(self, views: Views) -> Outputs:
        """Fill draft_tokens [B, W-1] from a block of the pending token and as many masked ones as the row has drafts.

        A row without drafts has no block; rows beyond a block are surplus.
        """
        draft_tokens, req_rows, num_drafts = views["draft_tokens"], views["req_rows"], views["num_drafts"]
        size, width = draft_tokens.shape[0], draft_tokens.shape[1] + 1
        ids = torch.full((size, width), self.model.mask, dtype=torch.int64, device=draft_tokens.device)
        ids[:, 0].copy_(views["pending_tokens"])
        taking_part = torch.where(num_drafts > 0, num_drafts, -1)
        metadata = metadata_of_rows(self.context, req_rows, views["positions"], taking_part, width)
        last = views["positions"] + num_drafts.clamp(min=0)
        metadata = replace(metadata, last_visible=last[:, None].expand(size, width).reshape(-1))
        self.tapping.inputs("block", metadata, ids.view(-1), None)
        states = self.model.forward(ids, metadata, self.cache)
        logits = self.model.logits(states)
        draw = partial(self.drawn, views, logits, metadata.positions, place=-1, width=width)
        tokens = self.tapping.choose("block", logits, draw=draw)
        draft_tokens.copy_(tokens.view(size, width)[:, 1:])
        return {}

    def extend_inputs(self, width: int) -> Shapes:
        """Return req_rows [B], positions [B], correct_len [B] and hidden_states [B, W, Df]."""
        features = self.needs.width(self.context.target)
        hidden_states = ((width, features), self.context.target.hidden_dtype)
        return super().extend_inputs(width) | {"hidden_states": hidden_states}

    def extend_values(self, accepted: Accepted) -> Mapping[str, Tensor]:
        """Return the features of all verified rows; the first correct_len + 1 of them are committed."""
        assert accepted.hidden_states is not None
        return {**super().extend_values(accepted), "hidden_states": accepted.hidden_states}

    def extend(self, views: Views) -> Outputs:
        """Write context entries n .. n+a of every row."""
        hidden_states, correct_len = views["hidden_states"], views["correct_len"]
        size, width = hidden_states.shape[:2]
        metadata = metadata_of_rows(self.context, views["req_rows"], views["positions"], correct_len, width)
        features = hidden_states.view(size * width, -1)
        self.tapping.inputs("extend", metadata, None, features)
        self.model.append(features, metadata, self.cache)
        return {}

    def prefill(self, chunks: PromptChunks) -> None:
        """Write the context entries of a chunk."""
        assert chunks.hidden_states is not None
        probes = self.context.probes
        probes.before_launch("extend_prompt")
        self.tapping.inputs("prompt", chunks.metadata, None, chunks.hidden_states)
        self.model.append(chunks.hidden_states, chunks.metadata, self.cache)
        probes.on_launch(Launch("extend_prompt", 0, len(chunks.rows), 0))


def probe(parts: ProbeParts) -> ProbeBlock:
    """Return the model of a probe's draft."""
    return ProbeBlock(parts)


ALGORITHM = DFlashDraft
