"""The experts of GLM-4-MoE and DeepSeek-V3 in float64, chosen within the best groups.

With s = sigmoid(router), c = s + a bias that only takes part in the choice: a group is worth the sum of its two largest
c; within the best groups the largest c are chosen; a chosen expert's weight is its s. Of equals, groups as experts,
those of lower number are chosen. Source: DeepSeek-V3 (2024), section 2.1.2, as transformers 5.23 runs it.
Shapes: `n` tokens, `D` hidden size, `X` experts, `G` groups.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from draftproof.reference.dense_layer import mlp
from draftproof.reference.sparse_config import Grouped

ROUTER = "mlp.gate.weight"
BIAS = "mlp.gate.e_score_correction_bias"
# What transformers adds to the sum that it divides by.
_TINY = 1e-20


def feed_forward(x: Tensor, weights: Mapping[str, Tensor], sizes: Grouped) -> Tensor:
    """The MLP [n, D] of x [n, D]; a layer has experts if its weights have a router."""
    if ROUTER not in weights:
        return mlp(x, weights)
    shares = route(x, weights, sizes)
    out = mlp(x, weights, "mlp.shared_experts.")
    for expert in range(sizes.total):
        rows = shares[:, expert].nonzero()[:, 0]
        out[rows] += shares[rows, expert, None] * mlp(x[rows], weights, f"mlp.experts.{expert}.")
    return out


def route(x: Tensor, weights: Mapping[str, Tensor], sizes: Grouped) -> Tensor:
    """Each expert's weight [n, X], zero but for the chosen ones."""
    scores = torch.sigmoid(x @ weights[ROUTER].T)
    judged = scores + weights[BIAS]
    by_group = judged.reshape(x.shape[0], sizes.groups, -1)
    worth = torch.sort(by_group, dim=-1, descending=True).values[..., :2].sum(-1)
    allowed = _largest(worth, sizes.chosen_groups)
    judged = by_group.masked_fill(~allowed[..., None], -math.inf).flatten(1)
    shares = torch.where(_largest(judged, sizes.chosen), scores, 0.0)
    if sizes.normalised:
        shares = shares / (shares.sum(-1, keepdim=True) + _TINY)
    return shares * sizes.scale


def _largest(values: Tensor, number: int) -> Tensor:
    """Which of each row's values are its `number` largest, those of lower number first among equals."""
    order = torch.sort(values, dim=-1, descending=True, stable=True).indices[:, :number]
    return torch.zeros_like(values, dtype=torch.bool).scatter(-1, order, True)
