"""Mixtures of experts in float64: their common part, GLM-4-MoE's and DeepSeek-V3's, Qwen3-Next's and Qwen3.5's.

GLM-4-MoE and DeepSeek-V3 choose in the best groups. With s = sigmoid(router), c = s + a bias that only takes part in
the choice: a group is worth the sum of its two largest c; within the best groups the largest c are chosen; a chosen
expert's weight is its s. Of equals, groups as well as experts, the lower numbers are chosen. Source: DeepSeek-V3
(2024), section 2.1.2, as transformers 5.23 runs it.

Shapes: `n` tokens, `D` hidden size, `X` experts, `Xg` groups. A layer has experts if its weights have a router.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from draftproof.properties.formats.checkpoint_config.qwen3_next import GatedDeltaNetConfig
from draftproof.properties.formats.checkpoint_config.sparse import GroupedMoeConfig
from draftproof.properties.formats.checkpoint_config.step3p5 import Step3p5Config
from draftproof.reference.models.layers import mlp, mlp_shapes
from draftproof.reference.models.target import FedForward
from draftproof.reference.models.tensors import Shapes

ROUTER = "mlp.gate.weight"
BIAS = "mlp.gate.e_score_correction_bias"
# What transformers adds to the sum that it divides by.
_TINY = 1e-20


def largest(values: Tensor, number: int) -> Tensor:
    """Return a mask of each row's `number` largest values; of equals the first ones are chosen."""
    order = torch.sort(values, dim=-1, descending=True, stable=True).indices[:, :number]
    return torch.zeros_like(values, dtype=torch.bool).scatter(-1, order, True)


def gap(values: Tensor, number: int) -> float:
    """Return the least that the `number`-th largest value of a row has over the next."""
    if number >= values.shape[-1]:
        return math.inf
    ordered = torch.sort(values, dim=-1, descending=True).values
    return (ordered[..., number - 1] - ordered[..., number]).min().item()


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


def grouped_experts(x: Tensor, weights: Mapping[str, Tensor], config: GroupedMoeConfig | Step3p5Config) -> FedForward:
    """Return the output of the MLP, or of the experts, for x [n, D]."""
    if ROUTER not in weights:
        return FedForward(mlp(x, weights))
    shares, closest = grouped_shares(x, weights, config)
    return FedForward(add_experts(mlp(x, weights, "mlp.shared_experts."), x, weights, shares), closest)


def grouped_shares(
    x: Tensor, weights: Mapping[str, Tensor], config: GroupedMoeConfig | Step3p5Config
) -> tuple[Tensor, float]:
    """Return each expert's weight [n, X], zero except for the chosen ones, and how close the choice was."""
    scores = torch.sigmoid(x @ weights[ROUTER].T)
    judged = scores + weights[BIAS]
    by_group = judged.reshape(x.shape[0], config.n_group, -1)
    worth = torch.sort(by_group, dim=-1, descending=True).values[..., :2].sum(-1)
    allowed, closest = largest(worth, config.topk_group), gap(worth, config.topk_group)
    judged = by_group.masked_fill(~allowed[..., None], -math.inf).flatten(1)
    closest = min(closest, gap(judged, config.num_experts_per_tok))
    shares = torch.where(largest(judged, config.num_experts_per_tok), scores, 0.0)
    if config.norm_topk_prob:
        shares = shares / (shares.sum(-1, keepdim=True) + _TINY)
    return shares * config.routed_scaling_factor, closest


def grouped_shapes(config: GroupedMoeConfig) -> Shapes:
    """Return name and shape of every tensor of a layer's experts."""
    d, count, inner = config.hidden_size, config.n_routed_experts, config.moe_intermediate_size
    shared = mlp_shapes("mlp.shared_experts.", inner * config.n_shared_experts, d)
    return {BIAS: (count,), **shared, **expert_shapes(count, inner, d)}


def softmax_experts(x: Tensor, weights: Mapping[str, Tensor], config: GatedDeltaNetConfig) -> FedForward:
    """Return the output of the MLP, or of the experts, for x [n, D]."""
    if ROUTER not in weights:
        return FedForward(mlp(x, weights))
    shared = torch.sigmoid(x @ weights["mlp.shared_expert_gate.weight"].T)
    shares, closest = softmax_shares(x, weights[ROUTER], config)
    routed = add_experts(torch.zeros_like(x), x, weights, shares)
    return FedForward(routed + shared * mlp(x, weights, "mlp.shared_expert."), closest)


def softmax_shares(x: Tensor, router: Tensor, config: GatedDeltaNetConfig) -> tuple[Tensor, float]:
    """Return each expert's weight [n, X]: softmax of the router over all experts, zero except for the largest ones.

    Of equally likely experts the lower numbers are chosen. The second value is how close the choice was.
    """
    logits = x @ router.T
    probabilities = torch.softmax(logits, dim=-1)
    shares = torch.where(largest(probabilities, config.num_experts_per_tok), probabilities, 0.0)
    closest = gap(logits, config.num_experts_per_tok)
    return (shares / shares.sum(-1, keepdim=True) if config.norm_topk_prob else shares), closest
