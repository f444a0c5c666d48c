"""Llama and Qwen3 in float64, straight from their definitions.

Shapes: `n` tokens, `D` hidden size, `F` intermediate size, `Nq` query heads, `N` key-value heads, `H` head size.
"""

from collections.abc import Mapping

import msgspec
from torch import Tensor

from draftproof.properties.values.checkpoint_config.dflash import DFlashConfig
from draftproof.properties.values.checkpoint_config.llama import LlamaConfig
from draftproof.reference.models.layers import (
    KV,
    attend_causally,
    mlp,
    mlp_shapes,
    norm_shapes,
    rms_norm,
    rope_frequencies,
    rotate,
)
from draftproof.reference.models.target import ReferenceCheckpointTarget
from draftproof.reference.models.tensors import Shapes


class ReferenceLlama(ReferenceCheckpointTarget[LlamaConfig]):
    """LlamaForCausalLM and Qwen3ForCausalLM."""

    @staticmethod
    def layer_shapes(config: LlamaConfig, index: int) -> Shapes:
        """See ReferenceCheckpointTarget."""
        return dense_shapes(config)

    @staticmethod
    def eagle_config(config: LlamaConfig) -> LlamaConfig:
        """Return the configuration of one layer of the target."""
        return msgspec.structs.replace(config, num_hidden_layers=1, layer_types=None)

    def layer(self, index: int, x: Tensor) -> tuple[Tensor, KV | None, Tensor | None]:
        """See ReferenceCheckpointTarget."""
        weights = self.layers[index]
        attended, entry = attention(self.norm(x, weights["input_layernorm.weight"]), weights, self.config)
        x = x + attended
        x = x + mlp(self.norm(x, weights["post_attention_layernorm.weight"]), weights)
        return x, entry, None


def head_size(config: LlamaConfig | DFlashConfig) -> int:
    """Return the size of a head: by default heads share out the hidden size."""
    return config.hidden_size // config.num_attention_heads if config.head_dim is None else config.head_dim


def kv_head_count(config: LlamaConfig | DFlashConfig) -> int:
    """Return the number of key-value heads: by default one for each query head."""
    return config.num_attention_heads if config.num_key_value_heads is None else config.num_key_value_heads


def dense_shapes(config: LlamaConfig | DFlashConfig) -> Shapes:
    """Return name and shape of every tensor of a layer."""
    d, h, kv_rows = config.hidden_size, head_size(config), kv_head_count(config) * head_size(config)
    shapes: Shapes = {
        "self_attn.q_proj.weight": (config.num_attention_heads * h, d),
        "self_attn.k_proj.weight": (kv_rows, d),
        "self_attn.v_proj.weight": (kv_rows, d),
        "self_attn.o_proj.weight": (d, config.num_attention_heads * h),
        **mlp_shapes("mlp.", config.intermediate_size, d),
        **norm_shapes(d),
    }
    if config.qk_norm:
        shapes |= {"self_attn.q_norm.weight": (h,), "self_attn.k_norm.weight": (h,)}
    return shapes


def attention(x: Tensor, weights: Mapping[str, Tensor], config: LlamaConfig) -> tuple[Tensor, KV]:
    """Causal grouped-query self-attention over x [n, D], positions 0 .. n-1.

    Returns the output [n, D] and (k, v), each [n, N, H], k after RoPE: what a KV cache holds.
    """
    size, eps = head_size(config), config.rms_norm_eps
    q, k, v = ((x @ weights[f"self_attn.{name}_proj.weight"].T).unflatten(-1, (-1, size)) for name in "qkv")
    if config.qk_norm:
        q = rms_norm(q, weights["self_attn.q_norm.weight"], eps)
        k = rms_norm(k, weights["self_attn.k_norm.weight"], eps)
    frequencies = rope_frequencies(config.rope_parameters, size)
    q, k = rotate(q, frequencies), rotate(k, frequencies)
    return attend_causally(q, k, v) @ weights["self_attn.o_proj.weight"].T, (k, v)
