"""Llama and Qwen3 in float64, straight from their definitions."""

from collections.abc import Mapping

import msgspec
from torch import Tensor

from draftproof.properties.formats.checkpoint_config.dflash import DFlashConfig
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig
from draftproof.reference.models.attention import attention, attention_shapes, head_size
from draftproof.reference.models.layers import KV, EntryStore, Places, mlp_shapes, norm_shapes
from draftproof.reference.models.target import ReferenceCheckpointTarget
from draftproof.reference.models.tensors import Shapes


class ReferenceLlama(ReferenceCheckpointTarget[LlamaConfig]):
    """LlamaForCausalLM and Qwen3ForCausalLM. Without a `store` entries are read as they were computed."""

    store: EntryStore | None = None

    @staticmethod
    def layer_shapes(config: LlamaConfig, index: int) -> Shapes:
        """See ReferenceCheckpointTarget."""
        return dense_shapes(config)

    @staticmethod
    def eagle_config(config: LlamaConfig) -> LlamaConfig:
        """Return the configuration of one layer of the target."""
        return msgspec.structs.replace(config, num_hidden_layers=1, layer_types=None)

    def mixer(self, x: Tensor, weights: Mapping[str, Tensor], places: Places | None = None) -> tuple[Tensor, KV]:
        """See ReferenceCheckpointTarget."""
        return attention(x, weights, self.config, places, self.store)


def dense_shapes(config: LlamaConfig | DFlashConfig) -> Shapes:
    """Return name and shape of every tensor of a layer."""
    biased = isinstance(config, LlamaConfig) and config.biased
    d, size = config.hidden_size, head_size(config)
    attended = attention_shapes(config, size, norms=config.qk_norm, biases=biased)
    return attended | mlp_shapes("mlp.", config.intermediate_size, d) | norm_shapes(d)
