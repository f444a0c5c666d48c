"""A decoder layer of a hybrid model. `T` packed tokens, `D` hidden width.

What a layer is (full attention or linear) is the type of its mixer, built once; nothing asks a configuration later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from draftproof.engine.models.config_fields import LINEAR
from draftproof.engine.models.gated_attention import GatedAttention, read_gated_attention, read_norm
from draftproof.engine.models.gated_delta import GatedDelta, read_gated_delta
from draftproof.engine.models.hybrid_config import HybridConfig
from draftproof.engine.models.layers import Mlp, read_mlp
from draftproof.engine.models.moe import Moe, read_moe


@dataclass(frozen=True)
class HybridLayer:
    """norm [D], the mixer, mlp_norm [D], the MLP."""

    norm: torch.Tensor
    mixer: GatedAttention | GatedDelta
    mlp_norm: torch.Tensor
    mlp: Mlp | Moe

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return (self.norm, *self.mixer.tensors(), self.mlp_norm, *self.mlp.tensors())


def read_layers(config: HybridConfig, tensors: Mapping[str, torch.Tensor], prefix: str) -> tuple[HybridLayer, ...]:
    """The layers `prefix`.0, `prefix`.1, ..; each mixer counts those of its own kind. Raises CheckpointError."""
    layers = []
    for i, kind in enumerate(config.types):
        mixer = _mixer(config, tensors, f"{prefix}.{i}", kind, config.types[:i].count(kind))
        norms = [f"{prefix}.{i}.{name}_layernorm.weight" for name in ("input", "post_attention")]
        before, after = (read_norm(tensors, name, config.width) for name in norms)
        layers.append(HybridLayer(before, mixer, after, _mlp(config, tensors, f"{prefix}.{i}.mlp", config.sparse[i])))
    return tuple(layers)


def _mixer(
    config: HybridConfig, tensors: Mapping[str, torch.Tensor], prefix: str, kind: str, index: int
) -> GatedAttention | GatedDelta:
    if kind == LINEAR:
        return read_gated_delta(config, tensors, f"{prefix}.linear_attn", index)
    return read_gated_attention(config, tensors, f"{prefix}.self_attn", index)


def _mlp(config: HybridConfig, tensors: Mapping[str, torch.Tensor], prefix: str, sparse: bool) -> Mlp | Moe:
    if sparse and config.experts:
        return read_moe(config.experts, tensors, prefix, config.width)
    return read_mlp(tensors, prefix, config.width, config.intermediate)
