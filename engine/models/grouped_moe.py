"""A mixture of experts as DeepSeek-V3 and GLM-4-MoE have it: sigmoid scores, groups first, then experts.

`T` packed tokens, `D` hidden width, `X` experts in `Xg` groups, `k` of them chosen for a token, `F` inner width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.engine.models.checkpoint import take, take_wide
from draftproof.engine.models.layers import Mlp, read_mlp
from draftproof.engine.models.moe import in_blocks, read_experts, run_experts
from draftproof.properties.formats.checkpoint_config.sparse import GroupedMoeConfig
from draftproof.properties.formats.checkpoint_config.step3p5 import Step3p5Config

# What transformers adds to the sum that shares are divided by.
_NORM_EPS = 1e-20


@dataclass(frozen=True)
class GroupedMoe:
    """router [X, D] and correction [X] in float32 at least, gate_up [X, 2F, D], down [X, D, F]; the shared experts."""

    config: GroupedMoeConfig | Step3p5Config
    router: Tensor
    correction: Tensor
    gate_up: Tensor
    down: Tensor
    shared: Mlp

    def __call__(self, x: Tensor) -> Tensor:
        """[T, D] -> [T, D]."""
        return in_blocks(x, self.config.num_experts_per_tok, self.gate_up, self.down, self._routed) + self.shared(x)

    def _routed(self, x: Tensor) -> Tensor:
        shares, experts = self.route(x)
        return run_experts(x, shares.to(x.dtype), experts, self.gate_up, self.down)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Shares [T, k], as wide as the router, and experts [T, k].

        Chosen by score + correction, of equals the lowest; shared out by the score alone.
        """
        scores = torch.sigmoid(F.linear(x.to(self.router.dtype), self.router))
        ranked = self._closed(scores + self.correction)
        # torch.topk promises nothing about ties.
        experts = torch.sort(ranked, dim=1, descending=True, stable=True).indices[:, : self.config.num_experts_per_tok]
        shares = scores.gather(1, experts)
        if self.config.norm_topk_prob:
            shares = shares / (shares.sum(1, keepdim=True) + _NORM_EPS)
        return shares * self.config.routed_scaling_factor, experts

    def _closed(self, ranked: Tensor) -> Tensor:
        """Set ranked [T, X] to -inf outside of the best groups: those whose two best experts have the largest sum."""
        groups, opened = self.config.n_group, self.config.topk_group
        if opened == groups:
            return ranked
        grouped = ranked.view(ranked.shape[0], groups, -1)
        best = torch.sort(grouped, dim=2, descending=True).values[:, :, :2].sum(2)
        order = torch.sort(best, dim=1, descending=True, stable=True).indices
        shut = torch.ones_like(best, dtype=torch.bool).scatter(1, order[:, :opened], False)
        return grouped.masked_fill(shut.unsqueeze(2), -torch.inf).view(ranked.shape)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.router, self.correction, self.gate_up, self.down, *self.shared.tensors())


def read_grouped_moe(config: GroupedMoeConfig, tensors: Mapping[str, Tensor], prefix: str) -> GroupedMoe:
    """Take the tensors below `prefix` and stack the experts. Raises CheckpointError."""
    width, count, inner = config.hidden_size, config.n_routed_experts, config.moe_intermediate_size
    router = take(tensors, f"{prefix}.gate.weight", count, width)
    gate_up, down = read_experts(count, inner, tensors, f"{prefix}.experts", width)
    return GroupedMoe(
        config=config,
        router=router.to(torch.promote_types(router.dtype, torch.float32)),
        correction=take_wide(tensors, f"{prefix}.gate.e_score_correction_bias", count),
        gate_up=gate_up,
        down=down,
        shared=read_mlp(tensors, f"{prefix}.shared_experts", width, inner * config.n_shared_experts),
    )
