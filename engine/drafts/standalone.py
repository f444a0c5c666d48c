"""A smaller language model as the draft, with entries and positions of its own and no hidden states of the target.

Its entry i is the token at position i. A round takes K forwards, from the pending token on; the extend then computes
the entries of every committed token, so that no entry is of a rejected token, and none is missing after a round that
accepted everything.

`B` rows of a launch, `W` verify width. Source: Leviathan et al., "Fast Inference from Transformers via Speculative
Decoding" (2023); docs/semantics/ngram.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from draftproof.engine.drafts.base import Accepted, DraftContext, ModelDraft, PromptChunks, Shapes, metadata_of_rows
from draftproof.engine.models.base import CacheShape, Target
from draftproof.engine.models.probe import ProbeParts, standalone
from draftproof.engine.runner import Outputs, Views
from draftproof.engine.stages import Launch


class StandaloneDraft(ModelDraft[Target]):
    """A `Draft`."""

    def __init__(self, model: Target, context: DraftContext) -> None:
        super().__init__(model, context)
        self.proposer, self.extenders = self.steps, (self.extend,)

    @classmethod
    def entries(cls, model: Target) -> CacheShape:
        """Return the shape of its layers' entries. Raises ValueError for a model with recurrent states."""
        if model.state_shape is not None:
            raise ValueError("invalid layer_types 'linear_attention' of a standalone draft: expected 'full_attention'")
        return model.cache_shape

    def steps(self, views: Views) -> Outputs:
        """Fill draft_tokens [B, W-1]: forward k runs the token at position n + k - 1 and gives draft k."""
        # `positions` is advanced in place and left as it was found, since verify reads it next: the system under test,
        # as in EAGLE (sgl-project/sglang#25015).
        draft_tokens, positions, req_rows = views["draft_tokens"], views["positions"], views["req_rows"]
        token, steps = views["pending_tokens"], draft_tokens.shape[1]
        for step in range(1, steps + 1):
            metadata = metadata_of_rows(
                self.context, req_rows, positions, torch.where(views["num_drafts"] >= step, 0, -1)
            )
            self.tapping.inputs("draft", metadata, token, None, step)
            hidden_states = self.model.forward(token, metadata, self.cache)
            logits = self.model.logits(hidden_states)
            draw = partial(self.drawn, views, logits, positions + 1, place=step - 1)
            token = self.tapping.choose("draft", logits, step, draw=draw)
            draft_tokens[:, step - 1].copy_(token)
            positions.add_(1)
        positions.sub_(steps)
        return {}

    def extend_inputs(self, width: int) -> Shapes:
        """Return req_rows, positions and correct_len [B], and ids [B, W]."""
        return super().extend_inputs(width) | {"ids": ((width,), torch.int64)}

    def extend_values(self, accepted: Accepted) -> Mapping[str, Tensor]:
        """Return the verified tokens; the first correct_len + 1 of them are committed."""
        return {**super().extend_values(accepted), "ids": accepted.ids}

    def extend(self, views: Views) -> Outputs:
        """Write entries n .. n+a of every row."""
        ids, correct_len = views["ids"], views["correct_len"]
        metadata = metadata_of_rows(self.context, views["req_rows"], views["positions"], correct_len, ids.shape[1])
        self.tapping.inputs("extend", metadata, ids.view(-1), None)
        self.model.forward(ids.view(-1), metadata, self.cache)
        return {}

    def prefill(self, chunks: PromptChunks) -> None:
        """Write entries of the prompt's own tokens, at their own positions."""
        batch, probes = chunks.rows, self.context.probes
        ids = torch.tensor([token for row in batch for token in row.ids], dtype=torch.int64, device=self.context.device)
        probes.before_launch("extend_prompt")
        self.tapping.inputs("prompt", chunks.metadata, ids, None)
        self.model.forward(ids, chunks.metadata, self.cache)
        probes.on_launch(Launch("extend_prompt", 0, len(batch), 0))


def probe(parts: ProbeParts) -> Target:
    """Return the model of a probe's draft."""
    return standalone(parts)


ALGORITHM = StandaloneDraft
