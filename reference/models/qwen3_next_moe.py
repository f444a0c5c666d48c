"""The MLP of a Qwen3-Next or Qwen3.5 decoder layer in float64: a plain one, or experts chosen by a router.

Shapes: `n` tokens, `D` hidden size, `F` intermediate size, `X` experts.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from draftproof.properties.values.checkpoint_config.qwen3_next import GatedDeltaNetConfig
from draftproof.reference.models.experts import ROUTER, add_experts, largest
from draftproof.reference.models.layers import mlp


def feed_forward(x: Tensor, weights: Mapping[str, Tensor], config: GatedDeltaNetConfig) -> Tensor:
    """The MLP [n, D] of x [n, D]; a layer has experts if its weights have a router."""
    if ROUTER not in weights:
        return mlp(x, weights)
    shared = torch.sigmoid(x @ weights["mlp.shared_expert_gate.weight"].T)
    routed = add_experts(torch.zeros_like(x), x, weights, route(x, weights[ROUTER], config))
    return routed + shared * mlp(x, weights, "mlp.shared_expert.")


def routed(x: Tensor, weights: Mapping[str, Tensor], config: GatedDeltaNetConfig) -> Tensor:
    """The sum [n, D] of each token's chosen experts by their weights."""
    shares = route(x, weights[ROUTER], config)
    out = torch.zeros_like(x)
    for expert in range(config.num_experts):
        rows = shares[:, expert].nonzero()[:, 0]
        out[rows] += shares[rows, expert, None] * mlp(x[rows], weights, f"mlp.experts.{expert}.")
    return out


def route(x: Tensor, router: Tensor, config: GatedDeltaNetConfig) -> Tensor:
    """Each expert's weight [n, X]: softmax of the router over all experts, zero but for the largest ones.

    Of equally likely experts those of lower number are chosen.
    """
    probabilities = torch.softmax(x @ router.T, dim=-1)
    shares = torch.where(largest(probabilities, config.num_experts_per_tok), probabilities, 0.0)
    return shares / shares.sum(-1, keepdim=True) if config.norm_topk_prob else shares
