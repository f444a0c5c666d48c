"""The MLP of a Qwen3-Next or Qwen3.5 decoder layer in float64: a plain one, or experts chosen by a router.

Shapes: `n` tokens, `D` hidden size, `F` intermediate size, `X` experts.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from draftproof.reference.dense_layer import mlp
from draftproof.reference.hybrid_config import Experts

_ROUTER = "mlp.gate.weight"


def feed_forward(x: Tensor, weights: Mapping[str, Tensor], sizes: Experts | None) -> Tensor:
    """The MLP [n, D] of x [n, D]; a layer has experts if its weights have a router."""
    if sizes is None or _ROUTER not in weights:
        return mlp(x, weights)
    shared = torch.sigmoid(x @ weights["mlp.shared_expert_gate.weight"].T)
    return routed(x, weights, sizes) + shared * mlp(x, weights, "mlp.shared_expert.")


def routed(x: Tensor, weights: Mapping[str, Tensor], sizes: Experts) -> Tensor:
    """The sum [n, D] of each token's chosen experts by their weights."""
    shares = route(x, weights[_ROUTER], sizes)
    out = torch.zeros_like(x)
    for expert in range(sizes.total):
        rows = shares[:, expert].nonzero()[:, 0]
        out[rows] += shares[rows, expert, None] * mlp(x[rows], weights, f"mlp.experts.{expert}.")
    return out


def route(x: Tensor, router: Tensor, sizes: Experts) -> Tensor:
    """Each expert's weight [n, X]: softmax of the router over all experts, zero but for the largest ones.

    Of equally likely experts those of lower number are chosen.
    """
    probabilities = torch.softmax(x @ router.T, dim=-1)
    order = torch.sort(probabilities, dim=-1, descending=True, stable=True).indices
    chosen = torch.zeros_like(probabilities).scatter(-1, order[:, : sizes.chosen], 1.0)
    shares = probabilities * chosen
    return shares / shares.sum(-1, keepdim=True) if sizes.normalised else shares
