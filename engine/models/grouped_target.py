"""What GLM-4-MoE and DeepSeek-V3 share as targets: layers with one MLP, then layers with experts, then MTP layers.

`T` packed tokens, `D` hidden width.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from draftproof.engine.models.base import CacheShape, Chain
from draftproof.engine.models.checkpoint import Tensors, take
from draftproof.engine.models.config_fields import target_fields
from draftproof.engine.models.decoder import Layer, Mixer
from draftproof.engine.models.grouped_moe import read_grouped_moe
from draftproof.engine.models.layers import read_mlp
from draftproof.engine.models.mtp_chain import MtpChain, NextTokenLayer
from draftproof.engine.models.target import CheckpointTarget
from draftproof.properties.formats.checkpoint_config import parse_config
from draftproof.properties.formats.checkpoint_config.sparse import GroupedMoeConfig
from draftproof.properties.lib.errors import CheckpointError

G = TypeVar("G", bound=GroupedMoeConfig)


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
    def read_layer(cls, config: G, tensors: Mapping[str, Tensor], prefix: str, index: int, *, sparse: bool) -> Layer:
        """Take the tensors below `prefix`; `index` is the layer of the cache. Raises CheckpointError."""
        width = config.hidden_size
        attention = cls.read_attention(config, tensors, f"{prefix}.self_attn", index)
        names = [f"{prefix}.{norm}_layernorm.weight" for norm in ("input", "post_attention")]
        before, after = (take(tensors, name, width) for name in names)
        if sparse:
            return Layer(before, attention, after, read_grouped_moe(config, tensors, f"{prefix}.mlp"))
        return Layer(before, attention, after, read_mlp(tensors, f"{prefix}.mlp", width, config.intermediate_size))

    def built_in_draft(self, config: Any, tensors: Mapping[str, Tensor], count: int | None, *, chain: bool) -> Chain:
        """Return the first `count` MTP layers, or all. Raises CheckpointError."""
        own = parse_config(target_fields(config), type(self.config))
        own.check_mtp("config.json")
        prefixes = mtp_prefixes(own)[:count]
        layers = [self._read_mtp(own, tensors, prefix, j) for j, prefix in enumerate(prefixes)]
        if isinstance(tensors, Tensors):
            tensors.refuse_unread_of(*prefixes)
        return MtpChain(self, layers, own.rms_norm_eps, self.entries(own, len(layers), self.hidden_dtype), chain=chain)

    def _read_mtp(self, config: G, tensors: Mapping[str, Tensor], prefix: str, index: int) -> NextTokenLayer:
        """Take an MTP layer, which may repeat embedding and lm_head of the target."""
        width = self.width
        for name, original in (("embed_tokens.weight", self.embedding), ("shared_head.head.weight", self.lm_head)):
            if prefix + name in tensors and not torch.equal(tensors[prefix + name], original):
                raise CheckpointError(f"invalid tensor {prefix}{name}: expected none, or the same as the target's")
        return NextTokenLayer(
            projection=take(tensors, f"{prefix}eh_proj.weight", width, 2 * width),
            embedding_norm=take(tensors, f"{prefix}enorm.weight", width),
            hidden_norm=take(tensors, f"{prefix}hnorm.weight", width),
            layer=self.read_layer(config, tensors, prefix.removesuffix("."), index, sparse=True),
            norm=take(tensors, f"{prefix}shared_head.norm.weight", width),
        )

    def unread_prefixes(self) -> tuple[str, ...]:
        """Return the prefixes of the MTP layers."""
        return mtp_prefixes(self.config)


def mtp_prefixes(config: GroupedMoeConfig) -> tuple[str, ...]:
    """Return what the names of each MTP layer's tensors begin with: they are numbered on from the target's layers."""
    first = config.num_hidden_layers
    return tuple(f"model.layers.{first + j}." for j in range(config.num_nextn_predict_layers))
