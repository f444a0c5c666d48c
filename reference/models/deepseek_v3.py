"""DeepSeek-V3 in float64: latent attention, straight from its definition.

Shapes: `n` tokens of one sequence from position zero, `D` hidden size, `N` heads. Source: DeepSeek-V2 (2024), section
2.1.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig, eagle_layer
from draftproof.properties.formats.checkpoint_config.sparse import DeepseekV3Config
from draftproof.reference.models.attention import project
from draftproof.reference.models.grouped_target import ReferenceGroupedTarget
from draftproof.reference.models.layers import KV, Places, attend_causally, rms_norm, rope_frequencies, rotate_at
from draftproof.reference.models.tensors import Shapes

# The norms inside latent attention keep their class's default, whatever rms_norm_eps is (transformers 5.23).
_LATENT_EPS = 1e-6


class ReferenceDeepseekV3(ReferenceGroupedTarget[DeepseekV3Config]):
    """DeepseekV3ForCausalLM."""

    @staticmethod
    def eagle_config(config: DeepseekV3Config) -> LlamaConfig:
        """Return the configuration of an EAGLE head: heads as large as a value, an MLP as the dense layers'."""
        heads = config.num_attention_heads
        return eagle_layer(config, heads, config.v_head_dim, config.intermediate_size, "v_head_dim")

    @staticmethod
    def attention_shapes(config: DeepseekV3Config) -> Shapes:
        """See ReferenceGroupedTarget."""
        d, heads, rank = config.hidden_size, config.num_attention_heads, config.kv_lora_rank
        queries = heads * (config.qk_nope_head_dim + config.qk_rope_head_dim)
        latent = rank + config.qk_rope_head_dim
        shapes: Shapes = {
            "kv_a_proj_with_mqa.weight": (latent, d),
            "kv_a_layernorm.weight": (rank,),
            "kv_b_proj.weight": (heads * (config.qk_nope_head_dim + config.v_head_dim), rank),
            "o_proj.weight": (d, heads * config.v_head_dim),
        }
        biases: Shapes = {"kv_a_proj_with_mqa.bias": (latent,), "o_proj.bias": (d,)}
        if config.q_lora_rank is None:
            shapes["q_proj.weight"] = (queries, d)
        else:
            shapes |= {"q_a_proj.weight": (config.q_lora_rank, d), "q_a_layernorm.weight": (config.q_lora_rank,)}
            shapes["q_b_proj.weight"] = (queries, config.q_lora_rank)
            biases["q_a_proj.bias"] = (config.q_lora_rank,)
        shapes |= biases if config.attention_bias else {}
        return {f"self_attn.{name}": shape for name, shape in shapes.items()}

    def mixer(self, x: Tensor, weights: Mapping[str, Tensor], places: Places | None = None) -> tuple[Tensor, KV]:
        """See ReferenceCheckpointTarget: entries are k [n, N, nope + rope] and v [n, N, value], each head with its own.

        The part of a key that has a position is one for all heads. A cache may keep the latent instead; this is what
        comes of it.
        """
        config, heads = self.config, self.config.num_attention_heads
        nope, rope, value = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
        positions = torch.arange(len(x)) if places is None else places.positions
        q_plain, q_turned = self._queries(x, weights).unflatten(-1, (heads, nope + rope)).split((nope, rope), dim=-1)
        compressed, k_turned = project(x, weights, "kv_a_proj_with_mqa").split((config.kv_lora_rank, rope), dim=-1)
        compressed = rms_norm(compressed, weights["self_attn.kv_a_layernorm.weight"], _LATENT_EPS)
        both = project(compressed, weights, "kv_b_proj").unflatten(-1, (heads, nope + value))
        k_plain, v = both.split((nope, value), dim=-1)
        k_turned = self._turn(k_turned[:, None], positions).expand(-1, heads, -1)
        q, k = torch.cat((q_plain, self._turn(q_turned, positions)), dim=-1), torch.cat((k_plain, k_turned), dim=-1)
        return project(attend_causally(q, k, v, places), weights, "o_proj"), (k, v)

    def _queries(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        if self.config.q_lora_rank is None:
            return project(x, weights, "q_proj")
        compressed = project(x, weights, "q_a_proj")
        normed = rms_norm(compressed, weights["self_attn.q_a_layernorm.weight"], _LATENT_EPS)
        return project(normed, weights, "q_b_proj")

    def _turn(self, x: Tensor, positions: Tensor) -> Tensor:
        """Apply RoPE to x [n, N, R]; interleaved, the planes are neighbours (2j, 2j + 1), which become (j, j + R/2)."""
        if self.config.rope_interleave:
            x = torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)
        return rotate_at(x, rope_frequencies(self.config.rope_parameters, self.config.qk_rope_head_dim), positions)
