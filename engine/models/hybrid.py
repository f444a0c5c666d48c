"""Qwen3-Next and Qwen3.5 (text) as a target. `T` packed tokens, `D` hidden width, `V` vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from draftproof.engine.models.base import Cache, CacheShape, Kept, Where
from draftproof.engine.models.checkpoint import open_tensors, read_json, take
from draftproof.engine.models.config_fields import FULL, LINEAR, target_fields
from draftproof.engine.models.decoder import run_layers
from draftproof.engine.models.gated_attention import read_norm
from draftproof.engine.models.gated_delta import state_shape
from draftproof.engine.models.hybrid_config import HybridConfig, parse_hybrid
from draftproof.engine.models.hybrid_layer import read_layers

# Where a model with a vision part keeps its text part; a text model has it right below "model".
_TEXT, _PLAIN = "model.language_model", "model"
# Parts of a checkpoint that the target has no use for.
OTHER_PARTS = ("model.visual.", "mtp.")


class Hybrid:
    """A `Target`. `tensors` are named as in a Hugging Face checkpoint; their device and dtype are the model's."""

    def __init__(self, config: HybridConfig, tensors: Mapping[str, torch.Tensor]) -> None:
        self.config, self.layer_types = config, config.types
        self.width, self.vocab = config.width, config.vocab
        text = _TEXT if f"{_TEXT}.embed_tokens.weight" in tensors else _PLAIN
        self.embedding = take(tensors, f"{text}.embed_tokens.weight", config.vocab, config.width)
        self.lm_head = self.embedding if config.tied else take(tensors, "lm_head.weight", config.vocab, config.width)
        self.layers = read_layers(config, tensors, f"{text}.layers")
        self.norm = read_norm(tensors, f"{text}.norm.weight", config.width)
        self.hidden_dtype = self.embedding.dtype
        self.cache_shape = cache_shape(config, self.hidden_dtype)
        self.state_shape = state_shape(config, config.types.count(LINEAR), self.hidden_dtype)

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


def cache_shape(config: HybridConfig, dtype: torch.dtype) -> CacheShape:
    """What the full attention layers keep per token."""
    return CacheShape(config.types.count(FULL), config.kv_heads, config.head_dim, config.head_dim, dtype)


def build_target(config: Any, tensors: Mapping[str, torch.Tensor]) -> Hybrid:
    """The target of a configuration that is only read (config_fields). Raises CheckpointError."""
    return Hybrid(parse_hybrid(target_fields(config)), tensors)


def load_hybrid(directory: str | Path, device: str | torch.device, dtype: torch.dtype) -> Hybrid:
    """Read a checkpoint directory. Raises CheckpointError."""
    tensors = open_tensors(directory, device, dtype)
    target = build_target(read_json(directory), tensors)
    tensors.refuse_unread(*OTHER_PARTS, *(("lm_head.weight",) if target.config.tied else ()))
    return target
