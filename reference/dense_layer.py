"""The parts of a Llama or Qwen3 decoder layer in float64, straight from their definitions.

Shapes: `n` tokens of one sequence from position zero, `D` hidden size, `N` query heads, `M` key-value heads,
`H` head size, `F` intermediate size, `V` vocabulary. Everything is float64, but for the rotary frequencies (see
`rope_frequencies`).
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from draftproof.reference.config import Config, Llama3Scaling, Rope

KV = tuple[Tensor, Tensor]


def look_up(table: Tensor, tokens: Sequence[int]) -> Tensor:
    """Rows of an embedding [V, D]: [n, D]. Raises ValueError for no tokens or a token outside the vocabulary."""
    if not tokens:
        raise ValueError("tokens is empty; at least one token is needed")
    bad = [token for token in tokens if not 0 <= token < table.shape[0]]
    if bad:
        raise ValueError(f"token {bad[0]} is outside the vocabulary; allowed: 0 .. {table.shape[0] - 1}")
    return table[torch.tensor(tokens, dtype=torch.int64)]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def rope_frequencies(rope: Rope, head_dim: int) -> Tensor:
    """The angle per token of each of the H/2 pairs, float64 [H/2].

    The frequencies are by definition the float32 values that every implementation computes; only the product with
    the position is taken in float64. Hence the same float32 operations in the same order as transformers' (5.23,
    `compute_default_rope_parameters` and `_compute_llama3_parameters`): another order rounds differently.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.scaling is not None:
        frequencies = _llama3_scaled(frequencies, rope.scaling)
    return frequencies.to(torch.float64)


def _llama3_scaled(frequencies: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Long wavelengths are slowed by `factor`, short ones kept, those between interpolated (float32)."""
    wavelength = 2 * math.pi / frequencies
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = (scaling.original_max_len / wavelength - low) / (high - low)
    between = (1 - smooth) * frequencies / scaling.factor + smooth * frequencies
    is_long = wavelength > scaling.original_max_len / low
    is_short = wavelength < scaling.original_max_len / high
    return torch.where(is_long, frequencies / scaling.factor, torch.where(is_short, frequencies, between))


def rotate(x: Tensor, frequencies: Tensor, first: int = 0) -> Tensor:
    """Turn x [n, N, H] at positions p = first, .. by p * frequency in each plane (component j, component j + H/2)."""
    positions = torch.arange(x.shape[0], dtype=torch.float64) + first
    angle = (positions[:, None] * frequencies)[:, None, :]
    left, right = x.chunk(2, dim=-1)
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def attention(x: Tensor, weights: Mapping[str, Tensor], config: Config) -> tuple[Tensor, KV]:
    """Causal grouped-query self-attention over x [n, D], positions 0 .. n-1.

    Returns the output [n, D] and (k, v), each [n, M, H], k after RoPE: what a KV cache holds.
    """
    n = x.shape[0]
    q = (x @ weights["self_attn.q_proj.weight"].T).reshape(n, config.heads, config.head_dim)
    k = (x @ weights["self_attn.k_proj.weight"].T).reshape(n, config.kv_heads, config.head_dim)
    v = (x @ weights["self_attn.v_proj.weight"].T).reshape(n, config.kv_heads, config.head_dim)
    if config.qk_norm:
        q = rms_norm(q, weights["self_attn.q_norm.weight"], config.eps)
        k = rms_norm(k, weights["self_attn.k_norm.weight"], config.eps)
    frequencies = rope_frequencies(config.rope, config.head_dim)
    q, k = rotate(q, frequencies), rotate(k, frequencies)
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    group = config.heads // config.kv_heads
    heads = [attend(q[:, i], k[:, i // group], v[:, i // group], future) for i in range(config.heads)]
    return torch.cat(heads, dim=-1) @ weights["self_attn.o_proj.weight"].T, (k, v)


def attend(q: Tensor, k: Tensor, v: Tensor, future: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(H)) v for one head, q, k, v [n, H]; `future` [n, n] marks what a row may not see."""
    scores = (q @ k.T / math.sqrt(q.shape[-1])).masked_fill(future, -math.inf)
    return torch.softmax(scores, dim=-1) @ v


def mlp(x: Tensor, weights: Mapping[str, Tensor], prefix: str = "mlp.") -> Tensor:
    """down(silu(gate(x)) * up(x)) for x [n, D]; the weights' names start with `prefix`."""
    gate = x @ weights[f"{prefix}gate_proj.weight"].T
    up = x @ weights[f"{prefix}up_proj.weight"].T
    return (silu(gate) * up) @ weights[f"{prefix}down_proj.weight"].T


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return x * torch.sigmoid(x)


def with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose name starts with `prefix`, by the rest of their name."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
