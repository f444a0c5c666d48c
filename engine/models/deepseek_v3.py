"""DeepSeek-V3 as a target: multi-head latent attention, run as plain attention with expanded keys and values.

`T` packed tokens, `D` hidden width, `N` heads, `Zq` rank of queries, `Zkv` rank of keys and values, `Hn` plain
components and `Hr` rotated components of a key, `E` value size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.base import AttentionMetadata, Cache, CacheShape
from draftproof.engine.models.checkpoint import take
from draftproof.engine.models.grouped_target import GroupedTarget
from draftproof.engine.models.layers import inverse_frequencies, rms_norm
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig, eagle_layer
from draftproof.properties.formats.checkpoint_config.sparse import DeepseekV3Config

# The norms of latents do not take rms_norm_eps.
LATENT_EPS = 1e-6


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention; `index` is the layer of the cache.

    projection [Zq + Zkv + Hr, D] gives the latents and the rotated key, which all heads share; without a query rank it
    has N(Hn + Hr) rows of queries in place of Zq. queries [N(Hn + Hr), Zq] or None, keys_values [N(Hn + E), Zkv],
    out [D, NE], inv_freq [Hr / 2]. Rotated components are in halves, whatever the order in the checkpoint.
    """

    index: int
    config: DeepseekV3Config
    projection: Tensor
    bias: Tensor | None
    query_norm: Tensor | None
    queries: Tensor | None
    norm: Tensor
    keys_values: Tensor
    out: Tensor
    out_bias: Tensor | None
    inv_freq: Tensor

    def __call__(self, x: Tensor, metadata: AttentionMetadata, cache: Cache) -> Tensor:
        """[T, D] -> [T, D]."""
        config, tokens, heads = self.config, x.shape[0], self.config.num_attention_heads
        plain_dim, rotary_dim, rank = config.qk_nope_head_dim, config.qk_rope_head_dim, config.kv_lora_rank
        projected = F.linear(x, self.projection, self.bias)
        first = projected.shape[1] - rank - rotary_dim
        q, latent, rotated = projected.split([first, rank, rotary_dim], dim=1)
        if self.queries is not None and self.query_norm is not None:
            q = F.linear(rms_norm(q, self.query_norm, LATENT_EPS), self.queries)
        q, rotated = q.reshape(tokens, heads, -1), rotated.unsqueeze(1)
        kernels.rope(q[..., plain_dim:], rotated, metadata.positions, self.inv_freq)
        expanded = F.linear(rms_norm(latent, self.norm, LATENT_EPS), self.keys_values).view(tokens, heads, -1)
        plain, v = expanded.split([plain_dim, config.v_head_dim], dim=2)
        k = torch.cat((plain, rotated.expand(-1, heads, -1)), dim=2)
        attended = cache.attend(self.index, q, k, v, metadata, (plain_dim + rotary_dim) ** -0.5)
        return F.linear(attended.reshape(tokens, -1), self.out, self.out_bias)

    def tensors(self) -> tuple[Tensor, ...]:
        optional = (self.bias, self.query_norm, self.queries, self.out_bias)
        there = (tensor for tensor in optional if tensor is not None)
        return (self.projection, self.norm, self.keys_values, self.out, self.inv_freq, *there)


class DeepseekV3(GroupedTarget[DeepseekV3Config]):
    """DeepseekV3ForCausalLM."""

    @staticmethod
    def eagle_config(config: DeepseekV3Config) -> LlamaConfig:
        """Return the configuration of an EAGLE head: heads as large as a value, an MLP as the dense layers'."""
        heads = config.num_attention_heads
        return eagle_layer(config, heads, config.v_head_dim, config.intermediate_size, "v_head_dim")

    @staticmethod
    def entries(config: DeepseekV3Config, layers: int, dtype: torch.dtype) -> CacheShape:
        """Return what `layers` layers keep per token: every head's expanded key and value."""
        key_dim = config.qk_nope_head_dim + config.qk_rope_head_dim
        return CacheShape(layers, config.num_attention_heads, key_dim, config.v_head_dim, dtype)

    @staticmethod
    def read_attention(
        config: DeepseekV3Config, tensors: Mapping[str, Tensor], prefix: str, index: int
    ) -> LatentAttention:
        """Take the tensors below `prefix` and fuse them. Raises CheckpointError."""
        width, heads, rank, latents = config.hidden_size, config.num_attention_heads, config.q_lora_rank, _rows(config)
        query_rows = heads * (config.qk_nope_head_dim + config.qk_rope_head_dim)
        latent = take(tensors, f"{prefix}.kv_a_proj_with_mqa.weight", latents, width)
        name, inputs = ("q_b_proj", rank) if rank else ("q_proj", width)
        queries = _in_halves(take(tensors, f"{prefix}.{name}.weight", query_rows, inputs), heads, config)
        before = take(tensors, f"{prefix}.q_a_proj.weight", rank, width) if rank else queries
        expanded = heads * (config.qk_nope_head_dim + config.v_head_dim)
        return LatentAttention(
            index=index,
            config=config,
            projection=torch.cat((before, _in_halves(latent, 1, config))),
            bias=_read_bias(config, tensors, prefix, query_rows),
            query_norm=take(tensors, f"{prefix}.q_a_layernorm.weight", rank) if rank else None,
            queries=queries if rank else None,
            norm=take(tensors, f"{prefix}.kv_a_layernorm.weight", config.kv_lora_rank),
            keys_values=take(tensors, f"{prefix}.kv_b_proj.weight", expanded, config.kv_lora_rank),
            out=take(tensors, f"{prefix}.o_proj.weight", width, heads * config.v_head_dim),
            out_bias=take(tensors, f"{prefix}.o_proj.bias", width) if config.attention_bias else None,
            inv_freq=inverse_frequencies(config.rope_parameters, config.qk_rope_head_dim).to(latent.device),
        )


def _rows(config: DeepseekV3Config) -> int:
    """Return the rows of the projection to latent and rotated key."""
    return config.kv_lora_rank + config.qk_rope_head_dim


def _read_bias(config: DeepseekV3Config, tensors: Mapping[str, Tensor], prefix: str, query_rows: int) -> Tensor | None:
    """Take the bias of the whole projection: queries without a latent have none."""
    if not config.attention_bias:
        return None
    latent = _in_halves(take(tensors, f"{prefix}.kv_a_proj_with_mqa.bias", _rows(config)), 1, config)
    if not config.q_lora_rank:
        return torch.cat((latent.new_zeros(query_rows), latent))
    return torch.cat((take(tensors, f"{prefix}.q_a_proj.bias", config.q_lora_rank), latent))


def _in_halves(rows: Tensor, heads: int, config: DeepseekV3Config) -> Tensor:
    """Sort the last Hr rows of each head into even, then odd rows, if they are stored in pairs.

    The scores are sums over these components, so any order will do that queries and keys share.
    """
    if not config.rope_interleave:
        return rows
    by_head = rows.reshape(heads, rows.shape[0] // heads, -1)
    rotated = by_head[:, -config.qk_rope_head_dim :]
    sorted_rows = torch.cat((by_head[:, : -config.qk_rope_head_dim], rotated[:, 0::2], rotated[:, 1::2]), dim=1)
    return sorted_rows.reshape(rows.shape)
