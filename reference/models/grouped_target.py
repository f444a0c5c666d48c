"""What GLM-4-MoE and DeepSeek-V3 share in float64: layers with an MLP, layers with experts, and layers for MTP."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from draftproof.properties.formats.checkpoint_config.sparse import GroupedMoeConfig
from draftproof.properties.lib.errors import CheckpointError
from draftproof.reference.models.experts import grouped_experts, grouped_shapes
from draftproof.reference.models.layers import mlp_shapes, norm_shapes, with_prefix
from draftproof.reference.models.mtp_layer import MtpLayer, joint_shapes
from draftproof.reference.models.target import DraftLayer, FedForward, ReferenceCheckpointTarget
from draftproof.reference.models.tensors import EMBEDDING, FINAL_NORM, LM_HEAD, Shapes, read_tensors

G = TypeVar("G", bound=GroupedMoeConfig)


class ReferenceGroupedTarget(ReferenceCheckpointTarget[G]):
    """A target with experts in groups; an architecture brings its attention."""

    @staticmethod
    @abstractmethod
    def attention_shapes(config: G) -> Shapes:
        """Return name and shape of every tensor of the attention."""

    @classmethod
    def layer_shapes(cls, config: G, index: int) -> Shapes:
        """See ReferenceCheckpointTarget; MTP layers have experts even where the model's first have none."""
        sparse = index >= config.first_k_dense_replace or index >= config.num_hidden_layers
        d = config.hidden_size
        rest = grouped_shapes(config) if sparse else mlp_shapes("mlp.", config.intermediate_size, d)
        return norm_shapes(d) | cls.attention_shapes(config) | rest

    @staticmethod
    def unread_prefixes(config: G) -> tuple[str, ...]:
        """Return the prefixes of the MTP layers, which are numbered behind the model's."""
        first = config.num_hidden_layers
        return tuple(f"model.layers.{first + j}." for j in range(config.num_nextn_predict_layers))

    def feed_forward(self, x: Tensor, weights: Mapping[str, Tensor]) -> FedForward:
        """See ReferenceCheckpointTarget."""
        return grouped_experts(x, weights, self.config)

    def mtp_layers(self, directory: str | Path) -> tuple[DraftLayer, ...]:
        """Read every MTP layer of the target's directory. Raises CheckpointError, also where there is none.

        An embedding or a head of its own must be the target's: transformers takes the target's without looking.
        """
        config, prefixes = self.config, self.unread_prefixes(self.config)
        config.check_mtp(str(directory))
        layer = joint_shapes(config.hidden_size) | self.layer_shapes(config, config.num_hidden_layers)
        shapes = {prefix + name: shape for prefix in prefixes for name, shape in layer.items()}
        own = tuple(f"model.layers.{i}." for i in range(config.num_hidden_layers))
        repeated = {"embed_tokens.weight": self.embedding, "shared_head.head.weight": self.lm_head}
        optional: Shapes = {
            prefix + name: tuple(original.shape) for prefix in prefixes for name, original in repeated.items()
        }
        ignored = (EMBEDDING, FINAL_NORM, LM_HEAD, *own)
        tensors = read_tensors(directory, shapes, optional=optional, ignored_prefixes=ignored, dtype=self.dtype)
        layers = [with_prefix(tensors, prefix) for prefix in prefixes]
        for prefix, stored in zip(prefixes, layers, strict=True):
            for name, original in repeated.items():
                if not torch.equal(stored.get(name, original), original):
                    expected = "expected none, or the same as the target's"
                    raise CheckpointError(f"invalid tensor {prefix}{name} in {directory}: {expected}")
        return tuple(MtpLayer(self, stored) for stored in layers)
