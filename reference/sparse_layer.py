"""The decoder layer of GLM-4-MoE and DeepSeek-V3 in float64, straight from its definition.

A layer is x + attention(norm(x)), then that + mlp(norm(that)); attention is grouped-query with an optional bias, or
latent. Shapes: `n` tokens of one sequence from position zero, `D` hidden size, `N` query heads, `M` key-value heads,
`H` head size.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from draftproof.reference.config import Rope
from draftproof.reference.dense_layer import KV, attend, rms_norm, rope_frequencies, rotate
from draftproof.reference.grouped_moe import feed_forward
from draftproof.reference.hybrid_layer import rotate_first
from draftproof.reference.sparse_config import Latent, SparseConfig

# The norms inside latent attention keep their class's default, whatever rms_norm_eps is (transformers 5.23).
_LATENT_EPS = 1e-6


def layer(x: Tensor, weights: Mapping[str, Tensor], config: SparseConfig) -> tuple[Tensor, KV]:
    """A decoder layer: x [n, D] -> [n, D], and its KV entries."""
    normed = rms_norm(x, weights["input_layernorm.weight"], config.eps)
    mixed, entry = attention(normed, weights, config)
    x = x + mixed
    normed = rms_norm(x, weights["post_attention_layernorm.weight"], config.eps)
    return x + feed_forward(normed, weights, config.experts), entry


def attention(x: Tensor, weights: Mapping[str, Tensor], config: SparseConfig) -> tuple[Tensor, KV]:
    """Causal self-attention over x [n, D], positions 0 .. n-1: [n, D], and (k, v) as they are attended, k after RoPE.

    k and v are [n, M, H]; with latent attention M = N, and keys and values have sizes of their own.
    """
    parts = grouped_query if config.latent is None else latent
    q, k, v = parts(x, weights, config)
    n, group = x.shape[0], config.heads // config.kv_heads
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    heads = [attend(q[:, i], k[:, i // group], v[:, i // group], future) for i in range(config.heads)]
    return project(torch.cat(heads, dim=-1), weights, "o_proj"), (k, v)


def project(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    """x times a matrix of the attention, plus its bias if it has one."""
    out = x @ weights[f"self_attn.{name}.weight"].T
    bias = weights.get(f"self_attn.{name}.bias")
    return out if bias is None else out + bias


def grouped_query(x: Tensor, weights: Mapping[str, Tensor], config: SparseConfig) -> tuple[Tensor, Tensor, Tensor]:
    """q [n, N, H], k, v [n, M, H] of x [n, D]; RoPE turns the first components of a head."""
    q, k, v = (project(x, weights, f"{name}_proj").unflatten(-1, (-1, config.head_dim)) for name in "qkv")
    if config.qk_norm:
        q = rms_norm(q, weights["self_attn.q_norm.weight"], config.eps)
        k = rms_norm(k, weights["self_attn.k_norm.weight"], config.eps)
    q, k = (rotate_first(part, config.rope, config.rotary_dim) for part in (q, k))
    return q, k, v


def latent(x: Tensor, weights: Mapping[str, Tensor], config: SparseConfig) -> tuple[Tensor, Tensor, Tensor]:
    """q, k [n, N, nope + rope] and v [n, N, value] of x [n, D].

    The part of a key that has a position is one for all heads. A cache may keep the latent instead; this is what comes
    of it. Source: DeepSeek-V2 (2024), section 2.1.
    """
    sizes = config.latent
    assert sizes is not None
    q = _queries(x, weights, sizes).unflatten(-1, (config.heads, sizes.nope + sizes.rope))
    q_plain, q_turned = q.split((sizes.nope, sizes.rope), dim=-1)
    compressed, k_turned = project(x, weights, "kv_a_proj_with_mqa").split((sizes.kv_rank, sizes.rope), dim=-1)
    compressed = rms_norm(compressed, weights["self_attn.kv_a_layernorm.weight"], _LATENT_EPS)
    both = project(compressed, weights, "kv_b_proj").unflatten(-1, (config.heads, sizes.nope + sizes.value))
    k_plain, v = both.split((sizes.nope, sizes.value), dim=-1)
    k_turned = _turn(k_turned[:, None], config.rope, sizes).expand(-1, config.heads, -1)
    q = torch.cat((q_plain, _turn(q_turned, config.rope, sizes)), dim=-1)
    return q, torch.cat((k_plain, k_turned), dim=-1), v


def _queries(x: Tensor, weights: Mapping[str, Tensor], sizes: Latent) -> Tensor:
    if sizes.q_rank is None:
        return project(x, weights, "q_proj")
    compressed = project(x, weights, "q_a_proj")
    return project(rms_norm(compressed, weights["self_attn.q_a_layernorm.weight"], _LATENT_EPS), weights, "q_b_proj")


def _turn(x: Tensor, rope: Rope, sizes: Latent) -> Tensor:
    """RoPE over x [n, N, R]. Interleaved, the planes are neighbours (2j, 2j + 1), which become (j, j + R/2)."""
    if sizes.interleaved:
        x = torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)
    return rotate(x, rope_frequencies(rope, sizes.rope))
