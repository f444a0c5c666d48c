"""What GLM-4-MoE and DeepSeek-V3 share as targets: layers with one MLP, then layers with experts, then MTP layers.

`T` packed tokens, `D` hidden width.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from draftproof.engine.models.base import CacheShape, Chain
from draftproof.engine.models.checkpoint import take
from draftproof.engine.models.config_fields import target_fields
from draftproof.engine.models.decoder import Mixer
from draftproof.engine.models.grouped_moe import GroupedMoe, read_grouped_moe
from draftproof.engine.models.layers import Mlp, read_mlp
from draftproof.engine.models.mtp_chain import MtpChain
from draftproof.engine.models.target import CheckpointTarget
from draftproof.properties.values.checkpoint_config import parse_config
from draftproof.properties.values.checkpoint_config.sparse import GroupedMoeConfig

G = TypeVar("G", bound=GroupedMoeConfig)


@dataclass(frozen=True)
class GroupedLayer:
    """norm [D], the attention, mlp_norm [D], the MLP."""

    norm: Tensor
    mixer: Mixer
    mlp_norm: Tensor
    mlp: Mlp | GroupedMoe

    def tensors(self) -> tuple[Tensor, ...]:
        """Return every tensor of the layer."""
        return (self.norm, *self.mixer.tensors(), self.mlp_norm, *self.mlp.tensors())


class GroupedTarget(CheckpointTarget[G]):
    """A target with experts in groups; an architecture brings its attention."""

    def __init__(self, config: G, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(config, tensors)
        count = config.num_hidden_layers
        self.layers = tuple(
            self.read_layer(config, tensors, f"model.layers.{i}", i, sparse=i >= config.first_k_dense_replace)
            for i in range(count)
        )
        self.norm = take(tensors, "model.norm.weight", self.width)
        self.cache_shape = self.entries(config, count, self.hidden_dtype)

    @staticmethod
    @abstractmethod
    def read_attention(config: G, tensors: Mapping[str, Tensor], prefix: str, index: int) -> Mixer:
        """Take the tensors below `prefix`; `index` is the layer of the cache. Raises CheckpointError."""

    @staticmethod
    @abstractmethod
    def entries(config: G, layers: int, dtype: torch.dtype) -> CacheShape:
        """Return what `layers` layers keep per token."""

    @classmethod
    def read_layer(
        cls, config: G, tensors: Mapping[str, Tensor], prefix: str, index: int, *, sparse: bool
    ) -> GroupedLayer:
        """Take the tensors below `prefix`; `index` is the layer of the cache. Raises CheckpointError."""
        width = config.hidden_size
        attention = cls.read_attention(config, tensors, f"{prefix}.self_attn", index)
        names = [f"{prefix}.{norm}_layernorm.weight" for norm in ("input", "post_attention")]
        before, after = (take(tensors, name, width) for name in names)
        mlp: Mlp | GroupedMoe
        if sparse:
            mlp = read_grouped_moe(config, tensors, f"{prefix}.mlp")
        else:
            mlp = read_mlp(tensors, f"{prefix}.mlp", width, config.intermediate_size)
        return GroupedLayer(before, attention, after, mlp)

    def built_in_draft(self, config: Any, tensors: Mapping[str, Tensor], count: int | None) -> Chain:
        """Return the first `count` MTP layers, or all. Raises CheckpointError."""
        own = parse_config(target_fields(config), type(self.config))
        own.check_mtp("config.json")
        layers = own.num_nextn_predict_layers if count is None else count
        first = own.num_hidden_layers
        decoders = [self.read_layer(own, tensors, f"model.layers.{first + j}", j, sparse=True) for j in range(layers)]
        return MtpChain(own, tensors, self, decoders, self.entries(own, layers, self.hidden_dtype))

    def unread_prefixes(self) -> tuple[str, ...]:
        """Return those of the MTP layers."""
        first = self.config.num_hidden_layers
        return tuple(f"model.layers.{first + j}." for j in range(self.config.num_nextn_predict_layers))
