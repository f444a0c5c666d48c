"""EAGLE with topk > 1: a tree of drafts, of all candidates of K steps those with the best scores.

`B` rows of a launch, `D` hidden width, `K` steps, k beams of a step. Sources: Li et al., "EAGLE-2" (2024); SGLang's
`draft_forward`; docs/semantics/trees.md, S-TREE.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from draftproof import kernels
from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts.base import Shapes
from draftproof.engine.drafts.eagle import EagleDraft
from draftproof.engine.models.base import AttentionMetadata, Head, Target
from draftproof.engine.runner import Outputs, Views
from draftproof.engine.tree import TreeConfig, seen


class _Beams(NamedTuple):
    """What the entries of a draft step are made of, and which they see.

    tokens, scores and candidate numbers [B, k]; hidden_states [B, k, D] that parents handed on; slots [B, k, step - 1]
    of the entries of ancestors, the last step first.
    """

    tokens: Tensor
    scores: Tensor
    numbers: Tensor
    hidden_states: Tensor
    slots: Tensor


class EagleTreeDraft(EagleDraft):
    """A `Draft`. Each request's first candidates and handed-on state are known from its last extend."""

    token_memory = ("next_draft_tokens",)

    @property
    def _tree(self) -> TreeConfig:
        tree = self.context.config.tree
        assert tree is not None
        return tree

    @classmethod
    def memory(cls, model: Head, target: Target, config: EngineConfig) -> Shapes:
        """Return the first candidates of the next round, their scores, and next_hidden_states as of a chain."""
        assert config.tree is not None
        rows, topk = config.num_rows, config.tree.topk
        return {
            "next_draft_tokens": ((rows, topk), torch.int64),
            "next_scores": ((rows, topk), torch.float64),
            "next_hidden_states": ((rows, cls.output_width(model, target)), target.hidden_dtype),
        }

    def _first(self, name: str, states: Tensor) -> dict[str, Tensor]:
        logits = self.model.logits(states)
        self.tapping.choose(name, logits, -1, self.model.target_ids)
        tokens, scores = self._best(logits)
        return {"next_draft_tokens": tokens, "next_scores": scores}

    def _best(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the k best tokens of each row of logits [T, V] and their scores, both [T, k]."""
        places = torch.empty((logits.shape[0], self._tree.topk), dtype=torch.int64, device=logits.device)
        scores = torch.empty_like(places, dtype=torch.float64)
        kernels.best_choices(places, scores, logits)
        target_ids = self.model.target_ids
        return places if target_ids is None else target_ids[places], scores

    def steps(self, views: Views) -> Outputs:
        """Return draft_tokens and parents [B, W - 1]: the best of all candidates, in the order of their numbers."""
        topk, config, count = self._tree.topk, self.context.config, views["draft_tokens"].shape[1]
        steps = next(steps for steps in config.runtimes if config.num_drafts(steps) == count)
        tokens, scores = self.saved("next_draft_tokens", views), self.saved("next_scores", views)
        size = tokens.shape[0]
        hidden_states = self.saved("next_hidden_states", views)[:, None].expand(-1, topk, -1)
        numbers = torch.arange(topk, device=tokens.device).expand(size, -1)
        beams = _Beams(tokens, scores, numbers, hidden_states, tokens.new_empty((size, topk, 0)))
        all_tokens, all_scores, groups = [tokens], [scores], [torch.full_like(tokens[:, :1], -1)]
        for step in range(1, steps):
            metadata = self._metadata(views, step, beams)
            ids, stand_ins = beams.tokens.reshape(-1), beams.hidden_states.reshape(size * topk, -1)
            self.tapping.inputs("draft", metadata, ids, stand_ins, step)
            states, handed = self.model.forward(ids, stand_ins, metadata, self.cache)
            tokens, below = self._best(self.model.logits(states))
            self.context.probes.taps.record("draft.candidates", tokens, step)
            tokens = tokens.view(size, -1)
            scores = (beams.scores[:, :, None] + below.view(size, topk, topk)).view(size, -1)
            all_tokens.append(tokens)
            all_scores.append(scores)
            groups.append(beams.numbers)
            first = topk + (step - 1) * topk * topk
            beams = self._next(beams, tokens, scores, handed.view(size, topk, -1), metadata.slot_mapping, first)
        limit = topk + (views["num_drafts"] - 1) * topk * topk
        limit = torch.where(views["num_drafts"] > 0, limit, 0)
        return self._kept(torch.cat(all_tokens, 1), torch.cat(all_scores, 1), torch.cat(groups, 1), limit, count)

    def _metadata(self, views: Views, step: int, beams: _Beams) -> AttentionMetadata:
        """Return where the entries of a step are: at one position, in columns of their own, each seeing its ancestors.

        Rows with fewer drafts are surplus, in slot 0.
        """
        config, topk, size = self.context.config, self._tree.topk, len(beams.tokens)
        context, req_rows = views["positions"], views["req_rows"]
        takes_part = views["num_drafts"] > step
        columns, slots = torch.empty_like(beams.tokens), torch.empty_like(beams.tokens)
        start, last = context + (step - 1) * topk, torch.where(takes_part, topk - 1, -1)
        table = (self.context.page_table, req_rows, start, last, config.page_size, config.max_len)
        kernels.assign_slots(columns, slots, *table)
        positions = torch.where(takes_part, context + step - 1, 0)[:, None].expand(size, topk)
        own = torch.cat([slots[:, :, None], beams.slots], dim=2)
        seen_by = seen(self.context.page_table, req_rows, context, config.page_size, own, positions)
        return AttentionMetadata(
            req_rows[:, None].expand(size, topk).reshape(-1),
            positions.reshape(-1),
            slots.view(-1),
            visible_slots=seen_by[0],
            ages=seen_by[1],
        )

    def _next(self, beams: _Beams, tokens: Tensor, scores: Tensor, handed: Tensor, slots: Tensor, first: int) -> _Beams:
        """Return the beams of the next step: of the candidates [B, k * k], numbered from `first`, the k best."""
        topk = self._tree.topk
        chosen = scores.sort(dim=1, descending=True, stable=True).indices[:, :topk]
        parent = (chosen // topk)[:, :, None]
        lineage = torch.cat([slots.view_as(beams.tokens)[:, :, None], beams.slots], dim=2)
        return _Beams(
            tokens.gather(1, chosen),
            scores.gather(1, chosen),
            chosen + first,
            handed.gather(1, parent.expand(-1, -1, handed.shape[2])),
            lineage.gather(1, parent.expand(-1, -1, lineage.shape[2])),
        )

    def _kept(self, tokens: Tensor, scores: Tensor, groups: Tensor, limit: Tensor, count: int) -> Outputs:
        """Return `count` drafts chosen from all candidates, and their parents; only numbers below `limit` [B] count.

        `groups` has the parent candidate of each k candidates, -1 for the first.
        """
        topk = self._tree.topk
        number = torch.arange(tokens.shape[1], device=tokens.device)
        scores = scores.masked_fill(number >= limit[:, None], -torch.inf)
        best = scores.sort(dim=1, descending=True, stable=True).indices[:, :count].sort(dim=1).values
        above = groups.gather(1, best // topk)
        rows = (best[:, None, :] == above[:, :, None]).to(torch.int64).argmax(dim=2) + 1
        return {"draft_tokens": tokens.gather(1, best), "parents": torch.where(above < 0, 0, rows)}


ALGORITHM = EagleTreeDraft
