"""GLM-4-MoE as a target: attention with a partial rotation, biases and norms of heads by configuration."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from draftproof.engine.models.base import CacheShape
from draftproof.engine.models.grouped_target import GroupedTarget
from draftproof.engine.models.layers import LayerSizes, SelfAttention, inverse_frequencies, read_attention
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig, eagle_layer
from draftproof.properties.formats.checkpoint_config.sparse import Glm4MoeConfig


class Glm4Moe(GroupedTarget[Glm4MoeConfig]):
    """Glm4MoeForCausalLM."""

    @staticmethod
    def eagle_config(config: Glm4MoeConfig) -> LlamaConfig:
        """Return the configuration of an EAGLE head: with an MLP as the dense layers'."""
        sizes = LayerSizes.of(config)
        return eagle_layer(config, sizes.num_key_value_heads, sizes.head_dim, sizes.intermediate_size)

    @staticmethod
    def entries(config: Glm4MoeConfig, layers: int, dtype: torch.dtype) -> CacheShape:
        """Return what `layers` layers keep per token."""
        return LayerSizes.of(config).cache_shape(layers, dtype)

    @staticmethod
    def read_attention(config: Glm4MoeConfig, tensors: Mapping[str, Tensor], prefix: str, index: int) -> SelfAttention:
        """Take the tensors below `prefix` and fuse them. Raises CheckpointError."""
        sizes, rope = LayerSizes.of(config), config.rope_parameters
        inv_freq = inverse_frequencies(rope, int(sizes.head_dim * rope.partial_rotary_factor))
        return read_attention(sizes, tensors, prefix, index, inv_freq, biased=config.attention_bias)
