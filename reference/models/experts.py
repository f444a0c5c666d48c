"""What mixtures of experts share in float64. Shapes: `n` tokens, `D` hidden size, `X` experts."""

from collections.abc import Mapping

import torch
from torch import Tensor

from draftproof.reference.models.layers import mlp, mlp_shapes
from draftproof.reference.models.tensors import Shapes

ROUTER = "mlp.gate.weight"


def largest(values: Tensor, number: int) -> Tensor:
    """Which of each row's values are its `number` largest, those of lower number first among equals."""
    order = torch.sort(values, dim=-1, descending=True, stable=True).indices[:, :number]
    return torch.zeros_like(values, dtype=torch.bool).scatter(-1, order, True)


def add_experts(out: Tensor, x: Tensor, weights: Mapping[str, Tensor], shares: Tensor) -> Tensor:
    """Return out [n, D] plus every expert of x [n, D], weighted by shares [n, X]; only those that count are run."""
    for expert in range(shares.shape[1]):
        rows = shares[:, expert].nonzero()[:, 0]
        out[rows] += shares[rows, expert, None] * mlp(x[rows], weights, f"mlp.experts.{expert}.")
    return out


def expert_shapes(count: int, inner: int, hidden_size: int) -> Shapes:
    """Return name and shape of every tensor of the router and of `count` experts."""
    shapes: Shapes = {ROUTER: (count, hidden_size)}
    for i in range(count):
        shapes |= mlp_shapes(f"mlp.experts.{i}.", inner, hidden_size)
    return shapes
