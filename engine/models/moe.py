"""A mixture of experts as Qwen3-Next has it, with shapes that depend on shapes only, so that it can be captured.

`T` packed tokens, `D` hidden width, `X` experts, `k` of them chosen for a token, `F` inner width of an expert.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from draftproof import kernels
from draftproof.engine.models.checkpoint import take
from draftproof.engine.models.hybrid_config import ExpertSizes
from draftproof.engine.models.layers import Mlp, read_mlp

# Weights gathered at once, in elements: what the chosen experts of one block of tokens have together.
GATHERED = 1 << 27


@dataclass(frozen=True)
class Moe:
    """router [X, D], gate_up [X, 2F, D], down [X, D, F]; the shared expert and its gate [1, D]."""

    chosen: int
    normalised: bool
    router: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    shared: Mlp
    shared_gate: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[T, D] -> [T, D]."""
        block = max(1, GATHERED // (self.chosen * (self.gate_up[0].numel() + self.down[0].numel())))
        routed = torch.cat([self._routed(x[start : start + block]) for start in range(0, x.shape[0], block)])
        return routed + torch.sigmoid(F.linear(x, self.shared_gate)) * self.shared(x)

    def _routed(self, x: torch.Tensor) -> torch.Tensor:
        shares, experts = self._route(x)
        chosen = experts.flatten()
        repeated = x.unsqueeze(1).expand(-1, self.chosen, -1).reshape(-1, x.shape[1], 1)
        gate_up = torch.bmm(self.gate_up.index_select(0, chosen), repeated).squeeze(2)
        active = gate_up.new_empty((chosen.shape[0], gate_up.shape[1] // 2))
        kernels.silu_mul(active, gate_up)
        outputs = torch.bmm(self.down.index_select(0, chosen), active.unsqueeze(2))
        return torch.bmm(shares.unsqueeze(1), outputs.view(x.shape[0], self.chosen, -1)).squeeze(1)

    def _route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Shares [T, k] in x's dtype, experts [T, k]: the most probable, of equals the lowest."""
        wide = torch.promote_types(x.dtype, torch.float32)
        probable = torch.softmax(F.linear(x, self.router), dim=1, dtype=wide)
        ordered, experts = torch.sort(probable, dim=1, descending=True, stable=True)
        shares, experts = ordered[:, : self.chosen], experts[:, : self.chosen]
        if self.normalised:
            shares = shares / shares.sum(1, keepdim=True)
        return shares.to(x.dtype), experts

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return (self.router, self.gate_up, self.down, *self.shared.tensors(), self.shared_gate)


def read_moe(sizes: ExpertSizes, tensors: Mapping[str, torch.Tensor], prefix: str, width: int) -> Moe:
    """Take the tensors below `prefix` and stack the experts. Raises CheckpointError."""
    gate_up, down = _experts(sizes, tensors, f"{prefix}.experts", width)
    return Moe(
        chosen=sizes.chosen,
        normalised=sizes.normalised,
        router=take(tensors, f"{prefix}.gate.weight", sizes.count, width),
        gate_up=gate_up,
        down=down,
        shared=read_mlp(tensors, f"{prefix}.shared_expert", width, sizes.shared),
        shared_gate=take(tensors, f"{prefix}.shared_expert_gate.weight", 1, width),
    )


def _experts(
    sizes: ExpertSizes, tensors: Mapping[str, torch.Tensor], prefix: str, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Stored one by one (Qwen3-Next), or all in one tensor (Qwen3.5)."""
    count, inner = sizes.count, sizes.intermediate
    if f"{prefix}.gate_up_proj" in tensors:
        gate_up = take(tensors, f"{prefix}.gate_up_proj", count, 2 * inner, width)
        return gate_up, take(tensors, f"{prefix}.down_proj", count, width, inner)
    experts = [read_mlp(tensors, f"{prefix}.{i}", width, inner) for i in range(count)]
    return torch.stack([expert.gate_up for expert in experts]), torch.stack([expert.down for expert in experts])
