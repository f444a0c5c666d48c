"""Eager layers without a cache. `T` packed tokens, `D` width, `N` heads, `H` head size."""

import torch
from torch import Tensor

from draftproof.kernels.arrays import wide
from draftproof.kernels.registry import register


@register("out")
def rms_norm(out: Tensor, x: Tensor, weight: Tensor, eps: float) -> None:
    """Set out [T,D] = (x / sqrt(mean(x^2) + eps), rounded to weight's dtype) * weight [D].

    With a weight of x's dtype that is the order that Llama has; with a float32 weight there is one rounding only.
    """
    values = x.to(wide(x.dtype))
    normed = values * torch.rsqrt(values.square().mean(-1, keepdim=True) + eps)
    out.copy_(normed.to(weight.dtype) * weight)


@register("out", "residual")
def add_rms_norm(out: Tensor, residual: Tensor, x: Tensor, weight: Tensor, eps: float) -> None:
    """Add x to residual [T,D], in residual's dtype; then out = rms_norm(residual)."""
    residual.add_(x)
    rms_norm(out, residual, weight, eps)


@register("out")
def silu_mul(out: Tensor, gate_up: Tensor) -> None:
    """Set out [T,D] = silu(gate) * up, where gate_up [T,2D] holds the gate first."""
    gate, up = gate_up.to(wide(gate_up.dtype)).chunk(2, -1)
    out.copy_(torch.nn.functional.silu(gate) * up)


@register("q", "k")
def rope(q: Tensor, k: Tensor, positions: Tensor, inv_freq: Tensor) -> None:
    """Rotate the first 2F components of q [T,Nq,H] and k [T,N,H] in place by positions [T] * inv_freq [F].

    Pairs are (i, i + F); components from 2F on stay as they are.
    """
    dtype = wide(q.dtype)
    angle = positions.to(dtype)[:, None] * inv_freq.to(dtype)
    cos, sin, half = angle.cos()[:, None], angle.sin()[:, None], inv_freq.shape[0]
    for heads in (q, k):
        # The first half is overwritten before the second is computed, so the values are taken out first.
        values = heads[..., : 2 * half].to(dtype, copy=True)
        first, second = values[..., :half], values[..., half:]
        heads[..., :half] = first * cos - second * sin
        heads[..., half : 2 * half] = second * cos + first * sin
