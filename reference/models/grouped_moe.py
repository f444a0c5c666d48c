"""The experts of GLM-4-MoE and DeepSeek-V3 in float64, chosen within the best groups.

With s = sigmoid(router), c = s + a bias that only takes part in the choice: a group is worth the sum of its two largest
c; within the best groups the largest c are chosen; a chosen expert's weight is its s. Of equals, groups as experts,
those of lower number are chosen. Source: DeepSeek-V3 (2024), section 2.1.2, as transformers 5.23 runs it.
Shapes: `n` tokens, `D` hidden size, `X` experts, `Xg` groups.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from draftproof.properties.values.checkpoint_config.sparse import GroupedMoeConfig
from draftproof.reference.models.experts import ROUTER, add_experts, expert_shapes, largest
from draftproof.reference.models.layers import mlp, mlp_shapes
from draftproof.reference.models.tensors import Shapes

BIAS = "mlp.gate.e_score_correction_bias"
# What transformers adds to the sum that it divides by.
_TINY = 1e-20


def feed_forward(x: Tensor, weights: Mapping[str, Tensor], config: GroupedMoeConfig) -> Tensor:
    """The MLP [n, D] of x [n, D]; a layer has experts if its weights have a router."""
    if ROUTER not in weights:
        return mlp(x, weights)
    return add_experts(mlp(x, weights, "mlp.shared_experts."), x, weights, route(x, weights, config))


def route(x: Tensor, weights: Mapping[str, Tensor], config: GroupedMoeConfig) -> Tensor:
    """Each expert's weight [n, X], zero but for the chosen ones."""
    scores = torch.sigmoid(x @ weights[ROUTER].T)
    judged = scores + weights[BIAS]
    by_group = judged.reshape(x.shape[0], config.n_group, -1)
    worth = torch.sort(by_group, dim=-1, descending=True).values[..., :2].sum(-1)
    allowed = largest(worth, config.topk_group)
    judged = by_group.masked_fill(~allowed[..., None], -math.inf).flatten(1)
    shares = torch.where(largest(judged, config.num_experts_per_tok), scores, 0.0)
    if config.norm_topk_prob:
        shares = shares / (shares.sum(-1, keepdim=True) + _TINY)
    return shares * config.routed_scaling_factor


def grouped_shapes(config: GroupedMoeConfig) -> Shapes:
    """Return name and shape of every tensor of a layer's experts."""
    d, count, inner = config.hidden_size, config.n_routed_experts, config.moe_intermediate_size
    shared = mlp_shapes("mlp.shared_experts.", inner * config.n_shared_experts, d)
    return {BIAS: (count,), **shared, **expert_shapes(count, inner, d)}
