"""Naive twins of layers without a cache. `T` tokens, `D` width, `N` heads, `H` head size, `I` inputs, `O` outputs."""

import itertools
import math

import torch
from torch import Tensor

from draftproof.reference.ops.arithmetic import GOLDEN_GAMMA, MODULUS, mix, products, rounded, signed


def rms_norm(out: Tensor, x: Tensor, weight: Tensor, eps: float) -> None:
    """Set out [T,D] = x / sqrt(mean of squares + eps), rounded to x's dtype unless weight's is wider, times weight."""
    weights = weight.tolist()
    for t in range(x.shape[0]):
        values = x[t].tolist()
        divisor = math.sqrt(math.fsum(products(values, values)) / len(values) + eps)
        normed = [value / divisor for value in values]
        if weight.dtype == x.dtype:
            normed = rounded(normed, x.dtype)
        scaled = [a * b for a, b in zip(normed, weights, strict=True)]
        out[t] = torch.tensor(scaled, dtype=torch.float64)


def add_rms_norm(out: Tensor, residual: Tensor, x: Tensor, weight: Tensor, eps: float) -> None:
    """Add x to residual, rounded to residual's dtype; out = rms_norm(residual)."""
    residual.copy_(residual.double() + x.double())
    rms_norm(out, residual, weight, eps)


def silu_mul(out: Tensor, gate_up: Tensor) -> None:
    """Set out [T,D] = gate / (1 + exp(-gate)) * up; gate_up [T,2D] holds the gate first."""
    width = out.shape[1]
    for t in range(out.shape[0]):
        values = gate_up[t].tolist()
        gated = [gate / (1.0 + math.exp(-gate)) * up for gate, up in zip(values[:width], values[width:], strict=True)]
        out[t] = torch.tensor(gated, dtype=torch.float64)


def rope(q: Tensor, k: Tensor, positions: Tensor, inv_freq: Tensor) -> None:
    """Rotate pairs (i, i + h) of q and k [T,N,H] by the angle position * inv_freq [h], a float32 unless q is float64.

    Components from 2h on stay.
    """
    half, frequencies = inv_freq.shape[0], inv_freq.tolist()
    for t, position in enumerate(positions.tolist()):
        angles = [position * frequency for frequency in frequencies]
        if q.dtype != torch.float64:
            angles = rounded(angles, torch.float32)
        for heads in (q, k):
            for n in range(heads.shape[1]):
                x = heads[t, n].tolist()
                pairs = [(x[i], x[i + half], math.cos(angles[i]), math.sin(angles[i])) for i in range(half)]
                turned = [a * c - b * s for a, b, c, s in pairs] + [b * c + a * s for a, b, c, s in pairs]
                heads[t, n, : 2 * half] = torch.tensor(turned, dtype=torch.float64)


def narrow_linear(out: Tensor, x: Tensor, weight: Tensor) -> None:
    """Set out [T,O] = x [T,I] @ weight [O,I].T."""
    rows = weight.tolist()
    for t, inputs in enumerate(x.tolist()):
        out[t] = torch.tensor([math.fsum(products(inputs, row)) for row in rows], dtype=torch.float64)


def norm_linear(out: Tensor, x: Tensor, norm: Tensor, weight: Tensor, eps: float) -> None:
    """Set out = rms_norm(x) @ weight.T, the norm rounded to x's dtype."""
    normed = torch.empty_like(x)
    rms_norm(normed, x, norm, eps)
    narrow_linear(out, normed, weight)


def norm_gate_up(out: Tensor, x: Tensor, norm: Tensor, weight: Tensor, eps: float) -> None:
    """Set out [T,O] = silu_mul(norm_linear(x)) with weight [2O,I]; the product is rounded to x's dtype."""
    both = x.new_empty((x.shape[0], weight.shape[0]))
    norm_linear(both, x, norm, weight, eps)
    silu_mul(out, both)


def linear_add(residual: Tensor, x: Tensor, weight: Tensor) -> None:
    """Add x @ weight.T to residual, the product rounded to residual's dtype first."""
    product = torch.empty_like(residual)
    narrow_linear(product, x, weight)
    residual.copy_(residual.double() + product.double())


def ring_mix(out: Tensor, x: Tensor, salt: int) -> None:
    """Set out = mix(x + salt * golden ratio) modulo 2^64, elementwise."""
    for index in itertools.product(*(range(size) for size in x.shape)):
        out[index] = signed(mix((int(x[index]) + salt * GOLDEN_GAMMA) % MODULUS))


def ring_linear(out: Tensor, x: Tensor, weight: Tensor) -> None:
    """Set out [T,O] = x [T,I] @ weight [O,I].T modulo 2^64."""
    rows = weight.tolist()
    for t, inputs in enumerate(x.tolist()):
        for o, row in enumerate(rows):
            out[t, o] = signed(sum(products(inputs, row)))
