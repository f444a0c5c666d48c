"""Llama and Qwen3 as a target. `T` packed tokens, `D` hidden width, `V` vocabulary, `N` heads, `H` head size.

The residual stream is updated in place; each norm is fused with the addition before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

from draftproof import kernels
from draftproof.engine.models.base import Cache, Kept, StateShape, Where
from draftproof.engine.models.checkpoint import DenseConfig, open_tensors, read_config, take
from draftproof.engine.models.config_fields import FULL
from draftproof.engine.models.decoder import tell
from draftproof.engine.models.layers import (
    Attention,
    LayerWeights,
    cache_shape,
    inverse_frequencies,
    is_narrow,
    mlp,
    narrow_layer,
    read_layer,
    rms_norm,
)


class Dense:
    """A `Target`. `tensors` are named as in a Hugging Face checkpoint; their device and dtype are the model's."""

    state_shape: StateShape | None = None

    def __init__(self, config: DenseConfig, tensors: Mapping[str, torch.Tensor]) -> None:
        self.config = config
        self.width, self.vocab = config.width, config.vocab
        self.layer_types = (FULL,) * config.layers
        self.embedding = take(tensors, "model.embed_tokens.weight", config.vocab, config.width)
        # Some writers leave a tied lm_head out, some repeat it; config.json decides.
        self.lm_head = self.embedding if config.tied else take(tensors, "lm_head.weight", config.vocab, config.width)
        prefixes = [f"model.layers.{i}" for i in range(config.layers)]
        self.layers = tuple(read_layer(config, tensors, prefix) for prefix in prefixes)
        names = [f"{prefix}.input_layernorm.weight" for prefix in prefixes] + ["model.norm.weight"]
        # One more than there are layers: the last is the final norm.
        self.norms = tuple(take(tensors, name, config.width) for name in names)
        self.hidden_dtype = self.embedding.dtype
        self.cache_shape, self.state_shape = cache_shape(config, self.hidden_dtype), None
        self._attention = Attention(config, inverse_frequencies(config.rope, config.head_dim).to(self.embedding.device))

    def forward(self, ids: torch.Tensor, where: Where, cache: Cache, kept: Kept | None = None) -> torch.Tensor:
        """Hidden states [T, D] after the final norm; `kept` is told of the output of every layer."""
        residual = F.embedding(ids, self.embedding)
        if is_narrow(residual, self.config):
            return self._narrow(residual, where, cache, kept)
        return run_dense(self.layers, self.norms, self._attention, residual, where, cache, kept)

    def _narrow(self, residual: torch.Tensor, where: Where, cache: Cache, kept: Kept | None) -> torch.Tensor:
        eps = self.config.norm_eps
        for i, weights in enumerate(self.layers):
            attend = partial(self._attention, i, weights, where=where, cache=cache)
            narrow_layer(weights, self.norms[i], residual, attend, eps)
            tell(kept, i, residual)
        return rms_norm(residual, self.norms[-1], eps)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        if not is_narrow(hidden, self.config):
            return F.linear(hidden, self.lm_head)
        out = hidden.new_empty((hidden.shape[0], self.vocab))
        kernels.narrow_linear(out, hidden, self.lm_head)
        return out

    def weights(self) -> tuple[torch.Tensor, ...]:
        """Every tensor that forward and logits read, each once."""
        shared = (self.embedding,) if self.config.tied else (self.embedding, self.lm_head)
        layers = tuple(tensor for layer in self.layers for tensor in layer.tensors())
        return (*shared, *self.norms, *layers, self._attention.inv_freq)


def run_dense(
    layers: Sequence[LayerWeights],
    norms: Sequence[torch.Tensor],
    attention: Attention,
    residual: torch.Tensor,
    where: Where,
    cache: Cache,
    kept: Kept | None = None,
) -> torch.Tensor:
    """The residual stream [T, D], changed in place, through all layers and the last of `norms`: [T, D]."""
    eps = attention.config.norm_eps
    normed = rms_norm(residual, norms[0], eps)
    for i, weights in enumerate(layers):
        attended = attention(i, weights, F.linear(normed, weights.qkv), where, cache)
        kernels.add_rms_norm(normed, residual, F.linear(attended, weights.out), weights.mlp_norm, eps)
        kernels.add_rms_norm(normed, residual, mlp(weights, normed), norms[i + 1], eps)
        tell(kept, i, residual)
    return normed


def load_target(directory: str | Path, device: str | torch.device, dtype: torch.dtype) -> Dense:
    """Read a checkpoint directory. Raises CheckpointError."""
    config, tensors = read_config(directory), open_tensors(directory, device, dtype)
    dense = Dense(config, tensors)
    tensors.refuse_unread(*(("lm_head.weight",) if config.tied else ()))
    return dense
