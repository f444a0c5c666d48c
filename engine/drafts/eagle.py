"""EAGLE with topk = 1: a chain of K proposals from a head that takes (token, hidden).

`B` rows of a launch, `W` verify width, `D` hidden width. Source: Li et al., "EAGLE" (2024); docs/semantics/eagle.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts.base import (
    Accepted,
    DraftContext,
    ModelDraft,
    Needs,
    PromptChunks,
    Shapes,
    metadata_of_rows,
)
from draftproof.engine.models.base import AttentionMetadata, Head, Target
from draftproof.engine.models.probe import ProbeParts
from draftproof.engine.models.probe_entries import ProbeHead
from draftproof.engine.runner import Outputs, Views
from draftproof.engine.stages import Launch


class EagleDraft(ModelDraft[Head]):
    """A `Draft`. Each request's first draft and handed-on state are known from its last extend."""

    token_memory = ("next_draft_token",)

    def __init__(self, model: Head, context: DraftContext) -> None:
        super().__init__(model, context)
        self.proposer, self.extenders = self.steps, (self.extend,)

    @classmethod
    def needed(cls, model: Head) -> Needs:
        """Return that it takes the last hidden states, after or before the target's final norm."""
        return Needs("before_norm" if model.takes == "before_norm" else "after_norm")

    @classmethod
    def memory(cls, model: Head, target: Target, config: EngineConfig) -> Shapes:
        """Return next_draft_token, the first of the next round, and next_hidden_states, which the head makes for it."""
        shapes: Shapes = {
            "next_draft_token": ((config.num_rows,), torch.int64),
            "next_hidden_states": ((config.num_rows, cls.output_width(model, target)), target.hidden_dtype),
        }
        if config.drafts_sampled:
            shapes["next_logits"] = ((config.num_rows, cls.num_logits(model, target)), torch.float64)
        return shapes

    @classmethod
    def lookahead(cls, model: Head) -> int:
        """Return 1: an entry takes the next token."""
        return 1

    @staticmethod
    def num_logits(model: Head, target: Target) -> int:
        """Return how many tokens the head can propose."""
        return target.vocab if model.target_ids is None else len(model.target_ids)

    @classmethod
    def output_width(cls, model: Head, target: Target) -> int:
        """Return the width of what the head hands on."""
        return target.width

    def next_hidden_states(self, req_row: int, seq_len: int) -> Tensor:
        """Return what the head handed on at the last entry."""
        return self.context.arena["next_hidden_states"][req_row][None]

    def saved(self, name: str, views: Views) -> Tensor:
        """Return what the last extend left of this name for each row [B, ..]."""
        return self.context.arena[name].index_select(0, views["req_rows"])

    def steps(self, views: Views) -> Outputs:
        """Fill draft_tokens [B, W-1]: the first is known from the last extend, each further one takes a forward."""
        # `positions` is advanced in place after each forward and left as it was found, since verify reads it next. That
        # is how engines do it: it is the system under test, and forgetting a part of it is sgl-project/sglang#25015.
        draft_tokens, positions, req_rows = views["draft_tokens"], views["positions"], views["req_rows"]
        token, hidden_states = (self.saved(name, views) for name in ("next_draft_token", "next_hidden_states"))
        target_ids = self.model.target_ids
        if self.context.config.drafts_sampled:
            logits = self.saved("next_logits", views)
            token = self.drawn(views, logits, positions + 1, token, place=0, target_ids=target_ids)
        draft_tokens[:, 0].copy_(token)
        steps = draft_tokens.shape[1]
        for step in range(1, steps):
            # Rows with fewer drafts are surplus, in slot 0.
            taking_part = torch.where(views["num_drafts"] > step, 0, -1)
            metadata = metadata_of_rows(self.context, req_rows, positions, taking_part)
            self.tapping.inputs("draft", metadata, token, hidden_states, step)
            states, hidden_states = self.model.forward(token, hidden_states, metadata, self.cache)
            logits = self.model.logits(states)
            draw = partial(self.drawn, views, logits, positions + 2, place=step, target_ids=target_ids)
            token = self.tapping.choose("draft", logits, step, target_ids, draw)
            draft_tokens[:, step].copy_(token)
            positions.add_(1)
        positions.sub_(steps - 1)
        return {}

    def extend_inputs(self, width: int) -> Shapes:
        """Return req_rows, positions and correct_len [B], target_tokens [B, W] and hidden_states [B, W, D]."""
        target = self.context.target
        return super().extend_inputs(width) | {
            "target_tokens": ((width,), torch.int64),
            "hidden_states": ((width, self.needs.width(target)), target.hidden_dtype),
        }

    def extend_values(self, accepted: Accepted) -> Mapping[str, Tensor]:
        """Return the entries of the round: the target's tokens and hidden states."""
        assert accepted.hidden_states is not None
        entries = {"target_tokens": accepted.target_tokens, "hidden_states": accepted.hidden_states}
        return {**super().extend_values(accepted), **entries}

    def extend(self, views: Views) -> Outputs:
        """Write entries n .. n+a of every row, a = correct_len; the last gives next_draft_token [B]."""
        target_tokens, correct_len, req_rows = views["target_tokens"], views["correct_len"], views["req_rows"]
        size, width = target_tokens.shape
        metadata = metadata_of_rows(self.context, req_rows, views["positions"], correct_len, width)
        hidden_states = views["hidden_states"].view(size * width, -1)
        self.tapping.inputs("extend", metadata, target_tokens.view(-1), hidden_states)
        states, handed = self.enter(target_tokens.view(-1), hidden_states, metadata)
        last = correct_len.clamp(min=0).view(size, 1, 1).expand(size, 1, handed.shape[1])
        next_states, next_hidden_states = (x.view(size, width, -1).gather(1, last)[:, 0] for x in (states, handed))
        return {**self._first("extend", next_states), "next_hidden_states": next_hidden_states}

    def enter(self, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata) -> tuple[Tensor, Tensor]:
        """Write the entries of ids [T] and of the target's hidden_states [T, D]; return the head's states."""
        return self.model.forward(ids, hidden_states, metadata, self.cache)

    def save_next_round(self, accepted: Accepted, outputs: tuple[Outputs, ...]) -> None:
        """Save each request's first draft and the head's hidden state for its next round."""
        self._save(accepted.req_rows, outputs[0])

    def _save(self, req_rows: Tensor, outputs: Outputs) -> None:
        for name, output in outputs.items():
            self.context.arena[name][req_rows] = output

    def prefill(self, chunks: PromptChunks) -> None:
        """Write entries of prompt tokens shifted by one; the last is the next of the prompt, or the target's."""
        assert chunks.hidden_states is not None
        batch, next_tokens, hidden_states = chunks.rows, chunks.next_tokens, chunks.hidden_states
        tails = [row.tail if row.tail >= 0 else token for row, token in zip(batch, next_tokens, strict=True)]
        shifted = [(*row.ids[1:], tail) for row, tail in zip(batch, tails, strict=True)]
        device, probes = self.context.device, self.context.probes
        ids = torch.tensor([token for row in shifted for token in row], dtype=torch.int64, device=device)
        ends = torch.tensor([len(row.ids) for row in batch], dtype=torch.int64, device=device).cumsum(0) - 1
        probes.before_launch("extend_prompt")
        self.tapping.inputs("prompt", chunks.metadata, ids, hidden_states)
        states, handed = self.enter(ids, hidden_states, chunks.metadata)
        first = self._first("prompt", states.index_select(0, ends))
        probes.on_launch(Launch("extend_prompt", 0, len(batch), 0))
        req_rows = torch.tensor([row.req_row for row in batch], dtype=torch.int64, device=device)
        self._save(req_rows, {**first, "next_hidden_states": handed.index_select(0, ends)})

    def _first(self, name: str, states: Tensor) -> dict[str, Tensor]:
        """Return what a round begins with, of the states of last entries."""
        logits = self.model.logits(states)
        first = {"next_draft_token": self.tapping.choose(name, logits, target_ids=self.model.target_ids)}
        return first | ({"next_logits": logits.double()} if self.context.config.drafts_sampled else {})


def probe(parts: ProbeParts) -> ProbeHead:
    """Return the model of a probe's draft."""
    return ProbeHead(parts)


ALGORITHM = EagleDraft
