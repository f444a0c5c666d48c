"""An EAGLE-1 head (Li et al., "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", ICML 2024).

x = fc(embedding of token i + 1, hidden i), embedding first; one decoder layer without an input norm; no final norm.
Embedding and lm_head are the target's. `T` packed tokens, `D` hidden width, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F

from draftproof.engine.models.base import Cache, Where
from draftproof.engine.models.checkpoint import CheckpointError, DenseConfig, open_tensors, read_config, take
from draftproof.engine.models.dense import Dense
from draftproof.engine.models.layers import Attention, cache_shape, inverse_frequencies, mlp, read_layer, rms_norm


class EagleHead:
    """A `Head`. Tensors: fc.weight [D, 2D], layers.0.self_attn.*, layers.0.mlp.*, layers.0.post_attention_layernorm."""

    def __init__(self, config: DenseConfig, tensors: Mapping[str, torch.Tensor], target: Dense) -> None:
        for field in ("width", "vocab"):
            got, expected = getattr(config, field), getattr(target.config, field)
            if got != expected:
                raise CheckpointError(f"{field} of the head is {got}; allowed: the target's, {expected}")
        self.config = replace(config, layers=1)
        self.fc = take(tensors, "fc.weight", config.width, 2 * config.width)
        self.layer = read_layer(config, tensors, "layers.0")
        self.embedding, self.lm_head = target.embedding, target.lm_head
        self.cache_shape = cache_shape(self.config, self.fc.dtype)
        self._attention = Attention(config, inverse_frequencies(config.rope, config.head_dim).to(self.fc.device))

    def forward(self, ids: torch.Tensor, hidden: torch.Tensor, where: Where, cache: Cache) -> torch.Tensor:
        """ids [T], hidden [T, D] -> handed-on states [T, D]."""
        residual = F.linear(torch.cat((F.embedding(ids, self.embedding), hidden), dim=1), self.fc)
        attended = self._attention(0, self.layer, F.linear(residual, self.layer.qkv), where, cache)
        residual = residual + F.linear(attended, self.layer.out)
        return residual + mlp(self.layer, rms_norm(residual, self.layer.mlp_norm, self.config.norm_eps))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        return F.linear(hidden, self.lm_head)

    def weights(self) -> tuple[torch.Tensor, ...]:
        """Every tensor that forward and logits read, each once."""
        shared = (self.embedding,) if self.embedding is self.lm_head else (self.embedding, self.lm_head)
        return (*shared, self.fc, *self.layer.tensors(), self._attention.inv_freq)


def load_head(directory: str | Path, target: Dense, device: str | torch.device, dtype: torch.dtype) -> EagleHead:
    """Read a head's checkpoint directory. Raises CheckpointError."""
    return EagleHead(read_config(directory), open_tensors(directory, device, dtype), target)
