"""GLM-4-MoE in float64: grouped-query attention, biases and norms of heads by configuration.

Shapes: `n` tokens of one sequence from position zero, `D` hidden size, `Nq` query heads, `N` key-value heads, `H` head
size.
"""

from collections.abc import Mapping

from torch import Tensor

from draftproof.properties.values.checkpoint_config.llama import LlamaConfig, eagle_layer
from draftproof.properties.values.checkpoint_config.sparse import Glm4MoeConfig
from draftproof.reference.models.grouped_target import ReferenceGroupedTarget, project
from draftproof.reference.models.layers import rms_norm, rotate_first
from draftproof.reference.models.tensors import Shapes


class ReferenceGlm4Moe(ReferenceGroupedTarget[Glm4MoeConfig]):
    """Glm4MoeForCausalLM."""

    @staticmethod
    def eagle_config(config: Glm4MoeConfig) -> LlamaConfig:
        """Return the configuration of an EAGLE head: with an MLP as the dense layers'."""
        return eagle_layer(config, config.num_key_value_heads, head_size(config), config.intermediate_size)

    @staticmethod
    def attention_shapes(config: Glm4MoeConfig) -> Shapes:
        """See ReferenceGroupedTarget."""
        d, h, kv_heads = config.hidden_size, head_size(config), config.num_key_value_heads
        rows = {"q_proj": config.num_attention_heads * h, "k_proj": kv_heads * h, "v_proj": kv_heads * h}
        shapes: Shapes = {f"{name}.weight": (count, d) for name, count in rows.items()}
        shapes["o_proj.weight"] = (d, config.num_attention_heads * h)
        if config.attention_bias:
            shapes |= {f"{name}.bias": (count,) for name, count in rows.items()}
        if config.use_qk_norm:
            shapes |= {"q_norm.weight": (h,), "k_norm.weight": (h,)}
        return {f"self_attn.{name}": shape for name, shape in shapes.items()}

    def queries_keys_values(self, x: Tensor, weights: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """See ReferenceGroupedTarget; RoPE turns the first components of a head."""
        size, rope = head_size(self.config), self.config.rope_parameters
        q, k, v = (project(x, weights, f"{name}_proj").unflatten(-1, (-1, size)) for name in "qkv")
        if self.config.use_qk_norm:
            q = rms_norm(q, weights["self_attn.q_norm.weight"], self.config.rms_norm_eps)
            k = rms_norm(k, weights["self_attn.k_norm.weight"], self.config.rms_norm_eps)
        q, k = (rotate_first(part, rope, int(size * rope.partial_rotary_factor)) for part in (q, k))
        return q, k, v


def head_size(config: Glm4MoeConfig) -> int:
    """Return the size of a head: by default heads share out the hidden size."""
    return config.hidden_size // config.num_attention_heads if config.head_dim is None else config.head_dim
