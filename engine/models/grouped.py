"""GLM-4-MoE and DeepSeek-V3 as a target. `T` packed tokens, `D` hidden width, `V` vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from draftproof.engine.models.base import Cache, CacheShape, Kept, StateShape, Where
from draftproof.engine.models.checkpoint import open_tensors, read_json, take
from draftproof.engine.models.config_fields import FULL, target_fields
from draftproof.engine.models.decoder import run_layers
from draftproof.engine.models.glm import GlmAttention, read_glm_attention
from draftproof.engine.models.grouped_config import GroupedConfig, LatentConfig, parse_grouped
from draftproof.engine.models.grouped_moe import GroupedMoe, read_grouped_moe
from draftproof.engine.models.layers import Mlp, read_mlp
from draftproof.engine.models.mla import LatentAttention, read_latent_attention


@dataclass(frozen=True)
class GroupedLayer:
    """norm [D], the attention, mlp_norm [D], the MLP."""

    norm: torch.Tensor
    mixer: GlmAttention | LatentAttention
    mlp_norm: torch.Tensor
    mlp: Mlp | GroupedMoe

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return (self.norm, *self.mixer.tensors(), self.mlp_norm, *self.mlp.tensors())


class Grouped:
    """A `Target`. `tensors` are named as in a Hugging Face checkpoint; their device and dtype are the model's."""

    def __init__(self, config: GroupedConfig, tensors: Mapping[str, torch.Tensor]) -> None:
        self.config = config
        self.width, self.vocab = config.width, config.vocab
        self.layer_types: tuple[str, ...] = (FULL,) * config.layers
        self.state_shape: StateShape | None = None
        self.embedding = take(tensors, "model.embed_tokens.weight", config.vocab, config.width)
        self.lm_head = self.embedding if config.tied else take(tensors, "lm_head.weight", config.vocab, config.width)
        self.layers = tuple(
            read_grouped_layer(config, tensors, f"model.layers.{i}", i, sparse=i >= config.dense)
            for i in range(config.layers)
        )
        self.norm = take(tensors, "model.norm.weight", config.width)
        self.hidden_dtype = self.embedding.dtype
        self.cache_shape = grouped_cache_shape(config, config.layers, self.hidden_dtype)

    def forward(self, ids: torch.Tensor, where: Where, cache: Cache, kept: Kept | None = None) -> torch.Tensor:
        """Hidden states [T, D] after the final norm; `kept` is told of the output of every layer."""
        residual = F.embedding(ids, self.embedding)
        return run_layers(self.layers, self.norm, residual, where, cache, self.config.norm_eps, kept)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        return F.linear(hidden, self.lm_head)

    def weights(self) -> tuple[torch.Tensor, ...]:
        """Every tensor that forward and logits read, each once."""
        shared = (self.embedding,) if self.config.tied else (self.embedding, self.lm_head)
        return (*shared, *(tensor for layer in self.layers for tensor in layer.tensors()), self.norm)


def read_grouped_layer(
    config: GroupedConfig, tensors: Mapping[str, torch.Tensor], prefix: str, index: int, *, sparse: bool
) -> GroupedLayer:
    """Take the tensors below `prefix`; `index` is the layer of the cache. Raises CheckpointError."""
    sizes, name = config.attention, f"{prefix}.self_attn"
    mixer: GlmAttention | LatentAttention
    if isinstance(sizes, LatentConfig):
        mixer = read_latent_attention(config, sizes, tensors, name, index)
    else:
        mixer = read_glm_attention(config, sizes, tensors, name, index)
    before, after = (
        take(tensors, f"{prefix}.{norm}_layernorm.weight", config.width) for norm in ("input", "post_attention")
    )
    mlp: Mlp | GroupedMoe
    if sparse:
        mlp = read_grouped_moe(config.experts, tensors, f"{prefix}.mlp", config.width)
    else:
        mlp = read_mlp(tensors, f"{prefix}.mlp", config.width, config.intermediate)
    return GroupedLayer(before, mixer, after, mlp)


def grouped_cache_shape(config: GroupedConfig, layers: int, dtype: torch.dtype) -> CacheShape:
    """What `layers` layers keep per token: of latent attention every head's expanded key and value."""
    sizes = config.attention
    if isinstance(sizes, LatentConfig):
        return CacheShape(layers, config.heads, sizes.plain_dim + sizes.rotary_dim, sizes.value_dim, dtype)
    return CacheShape(layers, sizes.kv_heads, sizes.head_dim, sizes.head_dim, dtype)


def build_grouped(config: Any, tensors: Mapping[str, torch.Tensor]) -> Grouped:
    """The target of a configuration that is only read (config_fields). Raises CheckpointError."""
    return Grouped(parse_grouped(target_fields(config)), tensors)


def mtp_prefixes(config: GroupedConfig) -> tuple[str, ...]:
    """Where the MTP layers of a checkpoint are: the target has no use for them."""
    return tuple(f"model.layers.{config.layers + j}." for j in range(config.mtp))


def load_grouped(directory: str | Path, device: str | torch.device, dtype: torch.dtype) -> Grouped:
    """Read a checkpoint directory. Raises CheckpointError."""
    tensors = open_tensors(directory, device, dtype)
    target = build_grouped(read_json(directory), tensors)
    tensors.refuse_unread(*mtp_prefixes(target.config), *(("lm_head.weight",) if target.config.tied else ()))
    return target
