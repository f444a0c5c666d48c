"""The attention of DeepSeek-V3: multi-head latent attention, run as plain attention with expanded keys and values.

`T` packed tokens, `D` hidden width, `N` heads, `A` query rank, `C` rank of keys and values, `P` plain and `R` rotated
components of a key, `E` value size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from draftproof import kernels
from draftproof.engine.models.base import Cache, Where
from draftproof.engine.models.checkpoint import take
from draftproof.engine.models.grouped_config import GroupedConfig, LatentConfig
from draftproof.engine.models.layers import inverse_frequencies, rms_norm

# The norms of latents do not take rms_norm_eps.
LATENT_EPS = 1e-6


@dataclass(frozen=True)
class LatentAttention:
    """`index` is the layer of the cache. projection [A + C + R, D] gives the latents and the rotated key, which all
    heads share; without a query rank it has N(P + R) rows of queries in place of A.

    queries [N(P + R), A] or None, keys_values [N(P + E), C], out [D, NE], inv_freq [R / 2]. Rotated components are in
    halves, whatever the order in the checkpoint.
    """

    index: int
    heads: int
    sizes: LatentConfig
    projection: torch.Tensor
    bias: torch.Tensor | None
    query_norm: torch.Tensor | None
    queries: torch.Tensor | None
    norm: torch.Tensor
    keys_values: torch.Tensor
    out: torch.Tensor
    out_bias: torch.Tensor | None
    inv_freq: torch.Tensor

    def __call__(self, x: torch.Tensor, where: Where, cache: Cache) -> torch.Tensor:
        """[T, D] -> [T, D]."""
        sizes, tokens = self.sizes, x.shape[0]
        projected = F.linear(x, self.projection, self.bias)
        first = projected.shape[1] - sizes.rank - sizes.rotary_dim
        q, latent, rotated = projected.split([first, sizes.rank, sizes.rotary_dim], dim=1)
        if self.queries is not None and self.query_norm is not None:
            q = F.linear(rms_norm(q, self.query_norm, LATENT_EPS), self.queries)
        q, rotated = q.reshape(tokens, self.heads, -1), rotated.unsqueeze(1)
        kernels.rope(q[..., sizes.plain_dim :], rotated, where.positions, self.inv_freq)
        expanded = F.linear(rms_norm(latent, self.norm, LATENT_EPS), self.keys_values).view(tokens, self.heads, -1)
        plain, v = expanded.split([sizes.plain_dim, sizes.value_dim], dim=2)
        k = torch.cat((plain, rotated.expand(-1, self.heads, -1)), dim=2)
        attended = cache.attend(self.index, q, k, v, where, (sizes.plain_dim + sizes.rotary_dim) ** -0.5)
        return F.linear(attended.reshape(tokens, -1), self.out, self.out_bias)

    def tensors(self) -> tuple[torch.Tensor, ...]:
        optional = (self.bias, self.query_norm, self.queries, self.out_bias)
        there = (tensor for tensor in optional if tensor is not None)
        return (self.projection, self.norm, self.keys_values, self.out, self.inv_freq, *there)


def read_latent_attention(
    config: GroupedConfig, sizes: LatentConfig, tensors: Mapping[str, torch.Tensor], prefix: str, index: int
) -> LatentAttention:
    """Take the tensors below `prefix` and fuse them. Raises CheckpointError."""
    width, heads, ranked = config.width, config.heads, sizes.query_rank > 0
    query_rows = heads * (sizes.plain_dim + sizes.rotary_dim)
    latent_rows = sizes.rank + sizes.rotary_dim
    latent = take(tensors, f"{prefix}.kv_a_proj_with_mqa.weight", latent_rows, width)
    name, inputs = ("q_b_proj", sizes.query_rank) if ranked else ("q_proj", width)
    queries = _in_halves(take(tensors, f"{prefix}.{name}.weight", query_rows, inputs), heads, sizes)
    before = take(tensors, f"{prefix}.q_a_proj.weight", sizes.query_rank, width) if ranked else queries
    return LatentAttention(
        index=index,
        heads=heads,
        sizes=sizes,
        projection=torch.cat((before, _in_halves(latent, 1, sizes))),
        bias=_bias(sizes, tensors, prefix, query_rows, latent_rows),
        query_norm=take(tensors, f"{prefix}.q_a_layernorm.weight", sizes.query_rank) if ranked else None,
        queries=queries if ranked else None,
        norm=take(tensors, f"{prefix}.kv_a_layernorm.weight", sizes.rank),
        keys_values=take(
            tensors, f"{prefix}.kv_b_proj.weight", heads * (sizes.plain_dim + sizes.value_dim), sizes.rank
        ),
        out=take(tensors, f"{prefix}.o_proj.weight", width, heads * sizes.value_dim),
        out_bias=take(tensors, f"{prefix}.o_proj.bias", width) if sizes.bias else None,
        inv_freq=inverse_frequencies(config.rope, sizes.rotary_dim).to(latent.device),
    )


def _bias(
    sizes: LatentConfig, tensors: Mapping[str, torch.Tensor], prefix: str, query_rows: int, latent_rows: int
) -> torch.Tensor | None:
    """Of the whole projection: queries without a latent have none."""
    if not sizes.bias:
        return None
    latent = _in_halves(take(tensors, f"{prefix}.kv_a_proj_with_mqa.bias", latent_rows), 1, sizes)
    if not sizes.query_rank:
        return torch.cat((latent.new_zeros(query_rows), latent))
    return torch.cat((take(tensors, f"{prefix}.q_a_proj.bias", sizes.query_rank), latent))


def _in_halves(rows: torch.Tensor, heads: int, sizes: LatentConfig) -> torch.Tensor:
    """The last R rows of each head sorted into those of even, then of odd number, if they are stored in pairs.

    The scores are sums over these components, so that any order will do which queries and keys share.
    """
    if not sizes.interleaved:
        return rows
    by_head = rows.reshape(heads, rows.shape[0] // heads, -1)
    rotated = by_head[:, -sizes.rotary_dim :]
    sorted_rows = torch.cat((by_head[:, : -sizes.rotary_dim], rotated[:, 0::2], rotated[:, 1::2]), dim=1)
    return sorted_rows.reshape(rows.shape)
