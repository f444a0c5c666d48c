"""Qwen3-Next and Qwen3.5 (text) as a target. `T` packed tokens, `D` hidden width, `V` vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from draftproof.engine.models.base import CacheShape, Chain
from draftproof.engine.models.checkpoint import take
from draftproof.engine.models.config_fields import FULL_ATTENTION, LINEAR_ATTENTION, draft_fields, list_layer_types
from draftproof.engine.models.decoder import Layer, Mixer
from draftproof.engine.models.gated_attention import read_gated_attention, read_norm
from draftproof.engine.models.gated_delta import linear_sizes, read_gated_delta
from draftproof.engine.models.layers import Mlp, read_mlp
from draftproof.engine.models.moe import Moe, read_moe
from draftproof.engine.models.mtp_chain import MtpChain, NextTokenLayer
from draftproof.engine.models.target import CheckpointTarget
from draftproof.properties.formats.checkpoint_config import parse_config
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig, eagle_layer
from draftproof.properties.formats.checkpoint_config.qwen3_next import GatedDeltaNetConfig

# Where a model with a vision part keeps its text part; a text model has it right below "model".
_TEXT, _PLAIN = "model.language_model", "model"


class Qwen3Next(CheckpointTarget[GatedDeltaNetConfig]):
    """Qwen3NextForCausalLM, Qwen3_5ForCausalLM and Qwen3_5MoeForCausalLM."""

    def __init__(self, config: GatedDeltaNetConfig, tensors: Mapping[str, Tensor]) -> None:
        prefix = _TEXT if f"{_TEXT}.embed_tokens.weight" in tensors else _PLAIN
        super().__init__(config, tensors, prefix)
        self.layer_types = layer_types(config)
        self.layers = read_layers(config, tensors, f"{prefix}.layers")
        self.norm = read_norm(tensors, f"{prefix}.norm.weight", self.width)
        self.cache_shape = cache_shape(config, self.hidden_dtype)
        self.state_shape = linear_sizes(config).state_shape(self.layer_types.count(LINEAR_ATTENTION), self.hidden_dtype)

    @staticmethod
    def eagle_config(config: GatedDeltaNetConfig) -> LlamaConfig:
        """Return the configuration of an EAGLE head: as wide inside as one expert, if there are any."""
        inner = config.moe_intermediate_size if config.num_experts else config.intermediate_size
        return eagle_layer(config, config.num_key_value_heads, config.head_dim, inner)

    def built_in_draft(self, config: Any, tensors: Mapping[str, Tensor], count: int | None, *, chain: bool) -> Chain:
        """Return the one MTP layer. Raises CheckpointError."""
        own = parse_config(draft_fields(config), GatedDeltaNetConfig)
        own.check_mtp("config.json")
        layer = NextTokenLayer(
            projection=take(tensors, "mtp.fc.weight", self.width, 2 * self.width),
            embedding_norm=read_norm(tensors, "mtp.pre_fc_norm_embedding.weight", self.width),
            hidden_norm=read_norm(tensors, "mtp.pre_fc_norm_hidden.weight", self.width),
            layer=read_layers(own, tensors, "mtp.layers")[0],
            norm=read_norm(tensors, "mtp.norm.weight", self.width),
        )
        return MtpChain(self, (layer,), own.rms_norm_eps, cache_shape(own, self.hidden_dtype), chain=chain)

    def unread_prefixes(self) -> tuple[str, ...]:
        """Return the prefixes of the vision part and of the MTP layer."""
        return ("model.visual.", "mtp.")


def layer_types(config: GatedDeltaNetConfig) -> tuple[str, ...]:
    """Return the type of each layer."""
    return list_layer_types(config.num_hidden_layers, config.layer_types, config.full_attention_interval)


def cache_shape(config: GatedDeltaNetConfig, dtype: torch.dtype) -> CacheShape:
    """Return what the full attention layers keep per token."""
    full = layer_types(config).count(FULL_ATTENTION)
    return CacheShape(full, config.num_key_value_heads, config.head_dim, config.head_dim, dtype)


def read_layers(config: GatedDeltaNetConfig, tensors: Mapping[str, Tensor], prefix: str) -> tuple[Layer, ...]:
    """Take the layers `prefix`.0, `prefix`.1, ..; each mixer counts layers of its own kind. Raises CheckpointError."""
    layers, types = [], layer_types(config)
    for i, kind in enumerate(types):
        mixer = _read_mixer(config, tensors, f"{prefix}.{i}", kind, types[:i].count(kind))
        norms = [f"{prefix}.{i}.{name}_layernorm.weight" for name in ("input", "post_attention")]
        before, after = (read_norm(tensors, name, config.hidden_size) for name in norms)
        layers.append(Layer(before, mixer, after, _read_mlp(config, tensors, f"{prefix}.{i}.mlp", i)))
    return tuple(layers)


def _read_mixer(
    config: GatedDeltaNetConfig, tensors: Mapping[str, Tensor], prefix: str, kind: str, index: int
) -> Mixer:
    if kind == LINEAR_ATTENTION:
        return read_gated_delta(config, tensors, f"{prefix}.linear_attn", index)
    return read_gated_attention(config, tensors, f"{prefix}.self_attn", index)


def _read_mlp(config: GatedDeltaNetConfig, tensors: Mapping[str, Tensor], prefix: str, layer: int) -> Mlp | Moe:
    if config.num_experts and layer not in config.mlp_only_layers and (layer + 1) % config.decoder_sparse_step == 0:
        return read_moe(config, tensors, prefix)
    return read_mlp(tensors, prefix, config.hidden_size, config.intermediate_size)
