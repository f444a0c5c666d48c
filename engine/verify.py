"""Target verification of a chain of drafts, and greedy acceptance.

`B` rows of a launch, `W` verify width, `D` hidden width.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from draftproof import kernels
from draftproof.engine.cache import PagedCache
from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts.base import Needs
from draftproof.engine.grammar import masked
from draftproof.engine.logprobs import chosen_from, of_prompts
from draftproof.engine.models.base import AttentionMetadata, Target, VerifyStates
from draftproof.engine.penalties import PenaltyTables
from draftproof.engine.probes import Probes
from draftproof.engine.runner import Outputs, Views
from draftproof.engine.sampling import Sampled, sample


class Verifier:
    """Runs the target over pending token and drafts; the function that verify graphs are made of."""

    def __init__(
        self,
        target: Target,
        cache: PagedCache,
        config: EngineConfig,
        probes: Probes,
        needs: Needs | None = None,
        penalties: PenaltyTables | None = None,
    ) -> None:
        """`needs`: what a draft takes of the target's hidden states, by default the last ones."""
        self.target, self.cache, self._needs = target, cache, needs or Needs("after_norm")
        self._penalties = penalties
        self._config, self._taps = config, probes.taps

    def verify(self, views: Views) -> Outputs:
        """Return ids and target_tokens [B, W], correct_len and bonus [B], and hidden_states [B, W, D] if needed."""
        ids = torch.cat([views["pending_tokens"].unsqueeze(1), views["draft_tokens"]], dim=1)
        metadata = self._metadata(views, ids)
        layer_outputs = self._needs.layer_outputs()
        hidden_states = self.target.forward(ids.view(-1), metadata, self.cache, layer_outputs)
        outputs = self.decide(hidden_states, ids, metadata, views)
        picked = self._needs.pick(hidden_states, layer_outputs)
        if picked is not None:
            outputs["hidden_states"] = picked.view(*ids.shape, -1)
        return self.compacted(metadata, outputs)

    def decide(
        self, hidden_states: Tensor, ids: Tensor, metadata: AttentionMetadata, views: Views
    ) -> dict[str, Tensor]:
        """Return the outputs of a verify of ids [B, W], except hidden states, from hidden_states [B * W, D]."""
        target_tokens, weights = self._choose(hidden_states, ids, metadata.positions, views)
        self._tap(ids, metadata, hidden_states, target_tokens)
        outputs = self._accept(views, ids, target_tokens.view_as(ids))
        return outputs | {name: value.unflatten(0, ids.shape) for name, value in weights.items()}

    def _metadata(self, views: Views, ids: Tensor) -> AttentionMetadata:
        """Return where the rows of ids [B, W] are, and what they see."""
        req_rows, (size, width) = views["req_rows"], ids.shape
        positions, slot_mapping = torch.empty_like(ids), torch.empty_like(ids)
        kernels.assign_slots(
            positions,
            slot_mapping,
            self.cache.page_table,
            req_rows,
            views["positions"],
            views["num_drafts"],
            self.cache.page_size,
            self._config.max_len,
        )
        token_rows = req_rows[:, None].expand(size, width).reshape(-1)
        return AttentionMetadata(
            token_rows, positions.view(-1), slot_mapping.view(-1), VerifyStates(views["state_slots"], width)
        )

    def _accept(self, views: Views, ids: Tensor, target_tokens: Tensor) -> dict[str, Tensor]:
        """Return the outputs of a verify, except hidden states."""
        correct_len, bonus = torch.empty_like(views["req_rows"]), torch.empty_like(views["req_rows"])
        accept_index = torch.empty_like(ids)
        kernels.greedy_accept(correct_len, bonus, accept_index, ids, target_tokens, views["num_drafts"])
        outputs = {"ids": ids, "target_tokens": target_tokens, "correct_len": correct_len, "bonus": bonus}
        return {**outputs, "accept_index": accept_index}

    def compacted(self, metadata: AttentionMetadata, outputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the outputs with the accepted rows first; in a chain they are in that order already."""
        return outputs

    def prefill(
        self, ids: Tensor, metadata: AttentionMetadata, last: Tensor, inputs: Mapping[str, Tensor]
    ) -> tuple[Tensor | None, Tensor, dict[str, Tensor]]:
        """Return hidden_states [T, D] of prompt tokens if needed, and what `after_prompts` returns of them."""
        layer_outputs = self._needs.layer_outputs()
        hidden_states = self.target.forward(ids, metadata, self.cache, layer_outputs)
        target_tokens, weights = self.after_prompts(hidden_states, metadata, last, inputs)
        return self._needs.pick(hidden_states, layer_outputs), target_tokens, weights

    def after_prompts(
        self, hidden_states: Tensor, metadata: AttentionMetadata, last: Tensor, inputs: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return target_tokens [R] after tokens `last` [R] of hidden_states [T, D], and logprobs for requests with any.

        Prompt logprobs are among these; `inputs` then has next_ids [T], the tokens that follow. The other `inputs` [R]
        are sampling parameters and penalties, where requests have any, and the excluded tokens [R, V].
        """
        logits = self.target.logits(hidden_states.index_select(0, last))
        if self._penalties:
            rows, above = metadata.req_rows.index_select(0, last), torch.full_like(last, -1)[:, None]
            logits = self._penalties.apply(logits, above, above, rows, inputs)
        if self._config.constrained:
            logits = masked(logits, inputs["excluded"], self.target.logit_units)
            self._taps.record("prefill.excluded", inputs["excluded"])
        target_tokens = torch.empty(last.shape[0], dtype=torch.int64, device=last.device)
        kernels.greedy_choice(target_tokens, logits)
        if self._config.sampled:
            nothing = torch.full_like(last, -1)[:, None]
            positions = metadata.positions.index_select(0, last) + 1
            sample(self.target, target_tokens, logits, nothing, positions, Sampled.of(inputs))
        self._taps.record("prefill.choice", target_tokens)
        self._taps.record_margin("prefill.margin", logits)
        weights = self._chosen_from(logits, target_tokens, inputs, 1)
        if self._config.most_prompt_logprobs is not None:
            each, most = self.target.logits(hidden_states), self._config.most_prompt_logprobs
            weights |= of_prompts(self.target, each, inputs["next_ids"], most)
        return target_tokens, weights

    def _choose(
        self, hidden_states: Tensor, ids: Tensor, positions: Tensor, views: Views
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the token after each row [T], and what it was chosen from, if any request asks.

        Of a sampled row it is a draft of ids [B, W], if one is accepted.
        """
        logits = self.target.logits(hidden_states)
        if self._penalties:
            logits = self._penalties.apply(logits, ids, self._above(ids, views), views["req_rows"], views)
        if self._config.constrained:
            logits = masked(logits, views["excluded"].flatten(0, 1), self.target.logit_units)
            self._taps.record("verify.excluded", views["excluded"])
        target_tokens = torch.empty(hidden_states.shape[0], dtype=torch.int64, device=hidden_states.device)
        kernels.greedy_choice(target_tokens, logits)
        if self._config.sampled:
            drafts = self._below(ids, views).flatten(0, 1)
            on = Sampled.of(views, ids.shape[1])
            sample(self.target, target_tokens, logits, drafts, positions + 1, on, self._drawn_by(views))
        self._taps.record_margin("verify.margin", logits)
        return target_tokens, self._chosen_from(logits, target_tokens, views, ids.shape[1])

    def _chosen_from(
        self, logits: Tensor, target_tokens: Tensor, inputs: Mapping[str, Tensor], width: int
    ) -> dict[str, Tensor]:
        most = self._config.most_logprobs
        if most is None:
            return {}
        on = Sampled.of(inputs, width) if self._config.sampled else None
        return chosen_from(self.target, logits, target_tokens, most, on)

    def _above(self, ids: Tensor, views: Views) -> Tensor:
        """Return the row above each row of ids [B, W], -1 for row 0: in a chain it is the row before."""
        return torch.arange(-1, ids.shape[1] - 1, device=ids.device).expand_as(ids)

    def _drawn_by(self, views: Views) -> Tensor | None:
        """Return the weights [T, V] that the draft behind each row was drawn by, if any was; none behind the last."""
        if not self._config.drafts_sampled:
            return None
        return torch.nn.functional.pad(views["draft_weights"], (0, 0, 0, 1)).flatten(0, 1)

    def _below(self, ids: Tensor, views: Views) -> Tensor:
        """Return the drafts [B, W, K] after each row of ids [B, W], -1 for none: of a chain the row behind it."""
        drafted = torch.arange(1, ids.shape[1] + 1, device=ids.device) <= views["num_drafts"][:, None]
        return torch.where(drafted, ids.roll(-1, dims=1), -1)[:, :, None]

    def _tap(self, ids: Tensor, metadata: AttentionMetadata, hidden_states: Tensor, target_tokens: Tensor) -> None:
        self._taps.record("verify.ids", ids)
        self._taps.record("verify.positions", metadata.positions)
        self._taps.record("verify.slots", metadata.slot_mapping)
        self._taps.record("verify.rows", metadata.req_rows)
        if isinstance(metadata.states, VerifyStates):
            self._taps.record("verify.states", metadata.states.state_slots)
        self._taps.record("verify.hidden", hidden_states)
        self._taps.record("verify.choice", target_tokens)
