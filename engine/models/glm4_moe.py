"""GLM-4-MoE as a target: attention with a partial rotation, biases and norms of heads by configuration.

`T` packed tokens, `D` hidden width, `Nq` query heads, `N` kv heads, `H` head size, `Hr` rotated components.
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
from draftproof.engine.models.layers import head_norm, inverse_frequencies
from draftproof.properties.values.checkpoint_config.llama import LlamaConfig, eagle_layer
from draftproof.properties.values.checkpoint_config.sparse import Glm4MoeConfig


@dataclass(frozen=True)
class GlmAttention:
    """`index` is the layer of the cache. projection [(Nq + 2N)H, D] and its bias give q, k, v of all heads.

    out [D, NqH]; norms [H], both or neither; inv_freq [Hr / 2].
    """

    index: int
    heads: int
    kv_heads: int
    eps: float
    projection: Tensor
    bias: Tensor | None
    out: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None
    inv_freq: Tensor

    def __call__(self, x: Tensor, metadata: AttentionMetadata, cache: Cache) -> Tensor:
        """[T, D] -> [T, D]."""
        size = self.out.shape[1] // self.heads
        heads = F.linear(x, self.projection, self.bias).view(x.shape[0], -1, size)
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = head_norm(q, self.q_norm, self.eps), head_norm(k, self.k_norm, self.eps)
        kernels.rope(q, k, metadata.positions, self.inv_freq)
        attended = cache.attend(self.index, q, k, v, metadata, size**-0.5)
        return F.linear(attended.reshape(x.shape[0], -1), self.out)

    def tensors(self) -> tuple[Tensor, ...]:
        optional = (self.bias, self.q_norm, self.k_norm)
        return (self.projection, self.out, self.inv_freq, *(tensor for tensor in optional if tensor is not None))


class Glm4Moe(GroupedTarget[Glm4MoeConfig]):
    """Glm4MoeForCausalLM."""

    @staticmethod
    def eagle_config(config: Glm4MoeConfig) -> LlamaConfig:
        """Return the configuration of an EAGLE head: with an MLP as the dense layers'."""
        return eagle_layer(config, config.num_key_value_heads, head_size(config), config.intermediate_size)

    @staticmethod
    def entries(config: Glm4MoeConfig, layers: int, dtype: torch.dtype) -> CacheShape:
        """Return what `layers` layers keep per token."""
        return CacheShape(layers, config.num_key_value_heads, head_size(config), head_size(config), dtype)

    @staticmethod
    def read_attention(config: Glm4MoeConfig, tensors: Mapping[str, Tensor], prefix: str, index: int) -> GlmAttention:
        """Take the tensors below `prefix` and fuse them. Raises CheckpointError."""
        size, width = head_size(config), config.hidden_size
        kv_rows = config.num_key_value_heads * size
        rows = {"q": config.num_attention_heads * size, "k": kv_rows, "v": kv_rows}
        parts = [take(tensors, f"{prefix}.{name}_proj.weight", count, width) for name, count in rows.items()]
        biased = rows.items() if config.attention_bias else ()
        biases = [take(tensors, f"{prefix}.{name}_proj.bias", count) for name, count in biased]
        norms = [take(tensors, f"{prefix}.{name}_norm.weight", size) if config.use_qk_norm else None for name in "qk"]
        rotary_dim = int(size * config.rope_parameters.partial_rotary_factor)
        return GlmAttention(
            index=index,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            eps=config.rms_norm_eps,
            projection=torch.cat(parts),
            bias=torch.cat(biases) if biases else None,
            out=take(tensors, f"{prefix}.o_proj.weight", width, rows["q"]),
            q_norm=norms[0],
            k_norm=norms[1],
            inv_freq=inverse_frequencies(config.rope_parameters, rotary_dim).to(parts[0].device),
        )


def head_size(config: Glm4MoeConfig) -> int:
    """Return the size of a head: by default heads share out the hidden size."""
    return config.head_dim or config.hidden_size // config.num_attention_heads
