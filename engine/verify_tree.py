"""Target verification of a tree of drafts: acceptance walks it, and what is accepted moves to where a chain has it.

`B` rows of a launch, `W` verify width, `D` hidden width. Sources: Miao et al., "SpecInfer" (2023); SGLang.
"""

from __future__ import annotations

import torch
from msgspec.structs import replace
from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.base import AttentionMetadata, VerifyStates
from draftproof.engine.runner import Views
from draftproof.engine.tree import above, branched
from draftproof.engine.verify import Verifier


class TreeVerifier(Verifier):
    """A `Verifier` of trees; its outputs begin with the accepted rows, as in a chain."""

    def _metadata(self, views: Views, ids: Tensor) -> AttentionMetadata:
        """Row m is in column n + m and at position n + its depth; it goes on from context and ancestors."""
        flat = super()._metadata(views, ids)
        live = torch.arange(ids.shape[1], device=ids.device) <= views["num_drafts"][:, None]
        contexts = torch.where(live, views["positions"][:, None], -1)
        table = (self.cache.page_table, self.cache.page_size)
        where = branched(flat, above(views["parents"]), contexts, *table, self._config.most_steps)
        return replace(where, states=VerifyStates(views["state_slots"], ids.shape[1], views["parents"]))

    def _above(self, ids: Tensor, views: Views) -> Tensor:
        return above(views["parents"])

    def _below(self, ids: Tensor, views: Views) -> Tensor:
        """Return them in the columns of their own rows [B, W, W]."""
        rows = torch.arange(ids.shape[1], device=ids.device)
        is_child = above(views["parents"])[:, None, :] == rows[:, None]
        return torch.where(is_child & (rows <= views["num_drafts"][:, None, None]), ids[:, None, :], -1)

    def _accept(self, views: Views, ids: Tensor, target_tokens: Tensor) -> dict[str, Tensor]:
        self._taps.record("verify.parents", views["parents"])
        correct_len, bonus = torch.empty_like(views["req_rows"]), torch.empty_like(views["req_rows"])
        accept_index = ids.new_empty((ids.shape[0], self._config.most_steps + 1))
        kernels.accept_tree(correct_len, bonus, accept_index, ids, target_tokens, views["parents"], views["num_drafts"])
        outputs = {"ids": ids, "target_tokens": target_tokens, "correct_len": correct_len, "bonus": bonus}
        return {**outputs, "accept_index": accept_index}

    def compacted(self, metadata: AttentionMetadata, outputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Move the entries of the rows that are accepted to columns n, n + 1, .., and their outputs likewise."""
        accepted = outputs["accept_index"][:, : outputs["ids"].shape[1]]
        slots = metadata.slot_mapping.view_as(outputs["ids"])
        count = accepted.shape[1]
        source = torch.where(accepted >= 0, slots.gather(1, accepted.clamp(min=0)), -1).reshape(-1)
        target = slots[:, :count].reshape(-1)
        self.cache.move(source, target)
        outputs["steps"] = self.cache.keep_path(metadata, accepted)
        rows = accepted.clamp(min=0)
        moved: dict[str, Tensor] = {}
        for name in ("ids", "target_tokens", "hidden_states"):
            if name in outputs:
                output = outputs[name]
                index = rows.view(*rows.shape, *(1,) * (output.dim() - 2)).expand(-1, -1, *output.shape[2:])
                moved[name] = torch.cat([output.gather(1, index), output[:, count:]], dim=1)
        return {**outputs, **moved}
