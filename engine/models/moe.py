"""Mixtures of experts with shapes that depend on shapes only, so that they can be captured; and Qwen3-Next's.

`T` packed tokens, `D` hidden width, `X` experts, `k` of them chosen for a token, `F` inner width of an expert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.checkpoint import take
from draftproof.engine.models.layers import Mlp, read_mlp
from draftproof.properties.formats.checkpoint_config.qwen3_next import GatedDeltaNetConfig

# Made at once, in elements: weights that few tokens gather, or what all experts make of many.
GATHERED = 1 << 27


@dataclass(frozen=True)
class Moe:
    """router [X, D], gate_up [X, 2F, D], down [X, D, F]; the shared expert and its gate [1, D]."""

    chosen: int
    normalised: bool
    router: Tensor
    gate_up: Tensor
    down: Tensor
    shared: Mlp
    shared_gate: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """[T, D] -> [T, D]."""
        on_layer = in_blocks(x, self.chosen, self.gate_up, self.down, self._routed)
        return on_layer + torch.sigmoid(F.linear(x, self.shared_gate)) * self.shared(x)

    def _routed(self, x: Tensor) -> Tensor:
        shares, experts = self._route(x)
        return run_experts(x, shares, experts, self.gate_up, self.down)

    def _route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Shares [T, k] in x's dtype, experts [T, k]: the most probable, of equals the lowest."""
        wide = torch.promote_types(x.dtype, torch.float32)
        probable = torch.softmax(F.linear(x, self.router), dim=1, dtype=wide)
        ordered, experts = torch.sort(probable, dim=1, descending=True, stable=True)
        shares, experts = ordered[:, : self.chosen], experts[:, : self.chosen]
        if self.normalised:
            shares = shares / shares.sum(1, keepdim=True)
        return shares.to(x.dtype), experts

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.router, self.gate_up, self.down, *self.shared.tensors(), self.shared_gate)


def in_blocks(x: Tensor, chosen: int, gate_up: Tensor, down: Tensor, on_layer: Callable[[Tensor], Tensor]) -> Tensor:
    """Return `on_layer` of x [T, D], run in blocks of tokens that each need about GATHERED elements of memory."""
    of_token = min(chosen * (gate_up[0].numel() + down[0].numel()), gate_up.shape[0] * 4 * down.shape[2])
    block = max(1, GATHERED // of_token)
    return torch.cat([on_layer(x[start : start + block]) for start in range(0, x.shape[0], block)])


def run_experts(x: Tensor, shares: Tensor, experts: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """Return the outputs of experts [T, k] for x [T, D], added up by their shares [T, k]: [T, D].

    gate_up [X, 2F, D], down [X, D, F]. Few tokens gather the weights of their experts; as soon as these are as many as
    there are experts, reading every expert once for all tokens is less.
    """
    run = _gathered if experts.numel() < gate_up.shape[0] else _all
    return run(x, shares, experts, gate_up, down)


def _gathered(x: Tensor, shares: Tensor, experts: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    count, chosen = experts.shape
    numbers = experts.flatten()
    repeated = x.unsqueeze(1).expand(-1, chosen, -1).reshape(-1, x.shape[1], 1)
    gathered = torch.bmm(gate_up.index_select(0, numbers), repeated).squeeze(2)
    active = gathered.new_empty((numbers.shape[0], gathered.shape[1] // 2))
    kernels.silu_mul(active, gathered)
    outputs = torch.bmm(down.index_select(0, numbers), active.unsqueeze(2))
    return torch.bmm(shares.unsqueeze(1), outputs.view(count, chosen, -1)).squeeze(1)


def _all(x: Tensor, shares: Tensor, experts: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    count, total = x.shape[0], gate_up.shape[0]
    both = torch.matmul(x, gate_up.transpose(1, 2)).view(total * count, -1)
    active = both.new_empty((both.shape[0], both.shape[1] // 2))
    kernels.silu_mul(active, both)
    weighted = shares.new_zeros((count, total)).scatter_(1, experts, shares).t().unsqueeze(2)
    return torch.bmm(active.view(total, count, -1) * weighted, down.transpose(1, 2)).sum(0)


def read_moe(config: GatedDeltaNetConfig, tensors: Mapping[str, Tensor], prefix: str) -> Moe:
    """Take the tensors below `prefix` and stack the experts. Raises CheckpointError."""
    width, count = config.hidden_size, config.num_experts
    gate_up, down = read_experts(count, config.moe_intermediate_size, tensors, f"{prefix}.experts", width)
    return Moe(
        chosen=config.num_experts_per_tok,
        normalised=config.norm_topk_prob,
        router=take(tensors, f"{prefix}.gate.weight", count, width),
        gate_up=gate_up,
        down=down,
        shared=read_mlp(tensors, f"{prefix}.shared_expert", width, config.shared_expert_intermediate_size),
        shared_gate=take(tensors, f"{prefix}.shared_expert_gate.weight", 1, width),
    )


def read_experts(
    count: int, inner: int, tensors: Mapping[str, Tensor], prefix: str, width: int
) -> tuple[Tensor, Tensor]:
    """gate_up [X, 2F, D] and down [X, D, F], stored one by one, or all in one tensor (Qwen3.5)."""
    if f"{prefix}.gate_up_proj" in tensors:
        gate_up = take(tensors, f"{prefix}.gate_up_proj", count, 2 * inner, width)
        return gate_up, take(tensors, f"{prefix}.down_proj", count, width, inner)
    experts = [read_mlp(tensors, f"{prefix}.{i}", width, inner) for i in range(count)]
    return torch.stack([expert.gate_up for expert in experts]), torch.stack([expert.down for expert in experts])
