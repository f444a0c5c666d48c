"""Eager linear layers for few tokens, fused with what is beside them. `T` tokens, `I` inputs, `O` outputs.

Sums are in float32 (float64 for float64) and rounded once; what is fused rounds where the separate ops would.
"""

import torch
from torch import Tensor

from draftproof.kernels.eager_dense import rms_norm, silu_mul
from draftproof.kernels.registry import register


@register("out")
def narrow_linear(out: Tensor, x: Tensor, weight: Tensor) -> None:
    """Set out [T,O] = x [T,I] @ weight [O,I].T."""
    out.copy_(torch.nn.functional.linear(x, weight))


@register("out")
def norm_linear(out: Tensor, x: Tensor, norm: Tensor, weight: Tensor, eps: float) -> None:
    """Set out [T,O] = rms_norm(x [T,I], norm [I]) @ weight [O,I].T."""
    normed = torch.empty_like(x)
    rms_norm(normed, x, norm, eps)
    narrow_linear(out, normed, weight)


@register("out")
def norm_gate_up(out: Tensor, x: Tensor, norm: Tensor, weight: Tensor, eps: float) -> None:
    """Set out [T,O] = silu(gate) * up of rms_norm(x [T,I], norm [I]) @ weight [2O,I].T, which holds the gate first."""
    both = x.new_empty((x.shape[0], weight.shape[0]))
    norm_linear(both, x, norm, weight, eps)
    silu_mul(out, both)


@register("residual")
def linear_add(residual: Tensor, x: Tensor, weight: Tensor) -> None:
    """Add x [T,I] @ weight [O,I].T to residual [T,O], each rounded to the tensors' dtype."""
    residual.add_(torch.nn.functional.linear(x, weight))
