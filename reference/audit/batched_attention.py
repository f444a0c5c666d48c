"""Attention of every architecture that the fast pass runs, over many texts at once.

Shapes: `R` requests, one a text, `T` rows of each, `J` positions of a context, `D` hidden size, `Nq` query heads, `N`
key-value heads, `H` head size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from draftproof.properties.formats.checkpoint_config.base import RopeParameters
from draftproof.reference.models.attention import head_size, project, project_heads
from draftproof.reference.models.deepseek_v3 import ReferenceDeepseekV3
from draftproof.reference.models.glm4_moe import ReferenceGlm4Moe
from draftproof.reference.models.layers import rms_norm, rope_frequencies
from draftproof.reference.models.llama import ReferenceLlama
from draftproof.reference.models.mimo import ReferenceMimo
from draftproof.reference.models.step3p5 import ReferenceStep3p5

Weights = Mapping[str, Tensor]
_LATENT_EPS = 1e-6
"""The norms inside latent attention have an epsilon of their own."""


class Heads(NamedTuple):
    """Queries [R, T, Nq, H], keys and values [R, T, N, H], turned."""

    q: Tensor
    k: Tensor
    v: Tensor


class Attention(NamedTuple):
    """How an architecture attends: `heads(x, weights, config, positions)` of normed x [R, T, D] at positions [R, T].

    `out(attended, x, weights)` is what comes of what its heads attended to [R, T, NqH].
    """

    heads: Callable[[Tensor, Weights, Any, Tensor], Heads]
    out: Callable[[Tensor, Tensor, Weights], Tensor]


def heads(x: Tensor, weights: Weights, config: Any, positions: Tensor) -> Heads:
    """Return what grouped-query attention is made of."""
    size = head_size(config)
    q, k, v = (project_heads(x, weights, name, size, config.rms_norm_eps) for name in "qkv")
    return Heads(*_both_turned(q, k, config.rope_parameters, positions), v)


def _both_turned(q: Tensor, k: Tensor, rope: RopeParameters, positions: Tensor) -> tuple[Tensor, Tensor]:
    return turned_first(q, rope, positions), turned_first(k, rope, positions)


def turned_first(x: Tensor, rope: RopeParameters, positions: Tensor) -> Tensor:
    """Turn the components of each head of x [R, T, N, H] that have a position."""
    size = int(x.shape[-1] * rope.partial_rotary_factor)
    return torch.cat((turned(x[..., :size], rope, positions), x[..., size:]), dim=-1)


def turned(x: Tensor, rope: RopeParameters, positions: Tensor) -> Tensor:
    """Turn all of each head of x [R, T, N, H]."""
    frequencies = rope_frequencies(rope, x.shape[-1]).to(x)
    angle = (positions.to(x.dtype)[..., None] * frequencies)[:, :, None]
    left, right = x.chunk(2, dim=-1)
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    """Return attention of q [R, T, Nq, H] over k, v [R, J, N, H]; a row sees the entries in `visible` [R, T, J]."""
    group = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group, dim=2).transpose(1, 2) for x in (k, v))
    out = scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=visible[:, None])
    return out.transpose(1, 2).flatten(2)


def _latent_heads(x: Tensor, weights: Weights, config: Any, positions: Tensor) -> Heads:
    """Return the heads of latent attention: keys and values of every head, made from the latent."""
    count, rank = config.num_attention_heads, config.kv_lora_rank
    nope, rope, value = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim

    def turn(part: Tensor) -> Tensor:
        if config.rope_interleave:
            part = torch.cat((part[..., 0::2], part[..., 1::2]), dim=-1)
        return turned(part, config.rope_parameters, positions)

    queries = x
    if config.q_lora_rank is not None:
        queries = rms_norm(project(x, weights, "q_a_proj"), weights["self_attn.q_a_layernorm.weight"], _LATENT_EPS)
    queries = project(queries, weights, "q_proj" if config.q_lora_rank is None else "q_b_proj")
    q_plain, q_turned = queries.unflatten(-1, (count, nope + rope)).split((nope, rope), dim=-1)
    latent, k_turned = project(x, weights, "kv_a_proj_with_mqa").split((rank, rope), dim=-1)
    latent = rms_norm(latent, weights["self_attn.kv_a_layernorm.weight"], _LATENT_EPS)
    k_plain, v = project(latent, weights, "kv_b_proj").unflatten(-1, (count, nope + value)).split((nope, value), dim=-1)
    shared = turn(k_turned[:, :, None]).expand(-1, -1, count, -1)
    return Heads(torch.cat((q_plain, turn(q_turned)), dim=-1), torch.cat((k_plain, shared), dim=-1), v)


def _gated_heads(x: Tensor, weights: Weights, config: Any, positions: Tensor) -> Heads:
    """Return the heads of Step-3.5, where norms multiply by 1 + weight."""
    q, k, v = (project(x, weights, f"{name}_proj").unflatten(-1, (-1, config.head_dim)) for name in "qkv")
    norms = (1 + weights[f"self_attn.{name}_norm.weight"] for name in "qk")
    q, k = (rms_norm(part, norm, config.rms_norm_eps) for part, norm in zip((q, k), norms, strict=True))
    return Heads(*_both_turned(q, k, config.rope_parameters, positions), v)


def _out(attended: Tensor, _x: Tensor, weights: Weights) -> Tensor:
    return project(attended, weights, "o_proj")


def _gated_out(attended: Tensor, x: Tensor, weights: Weights) -> Tensor:
    gates = torch.sigmoid(project(x, weights, "g_proj"))[..., None]
    return project((attended.unflatten(-1, (gates.shape[-2], -1)) * gates).flatten(-2), weights, "o_proj")


GROUPED = Attention(heads, _out)
ATTENTION: dict[type, Attention] = {
    ReferenceLlama: GROUPED,
    ReferenceMimo: GROUPED,
    ReferenceGlm4Moe: GROUPED,
    ReferenceStep3p5: Attention(_gated_heads, _gated_out),
    ReferenceDeepseekV3: Attention(_latent_heads, _out),
}
"""The targets that the fast pass runs; those with recurrent states are not among them."""
