"""GLM-4-MoE in float64: grouped-query attention, biases and norms of heads by configuration."""

from collections.abc import Mapping

from torch import Tensor

from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig, eagle_layer
from draftproof.properties.formats.checkpoint_config.sparse import Glm4MoeConfig
from draftproof.reference.models.attention import attention, attention_shapes, head_size
from draftproof.reference.models.grouped_target import ReferenceGroupedTarget
from draftproof.reference.models.layers import KV, Places
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
        return attention_shapes(config, head_size(config), norms=config.use_qk_norm, biases=config.attention_bias)

    def mixer(self, x: Tensor, weights: Mapping[str, Tensor], places: Places | None = None) -> tuple[Tensor, KV]:
        """See ReferenceCheckpointTarget."""
        return attention(x, weights, self.config, places)
