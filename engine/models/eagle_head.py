"""An EAGLE-1 head (Li et al., "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", ICML 2024).

x = fc(embedding of token i + 1, hidden i), embedding first; one decoder layer without an input norm; no final norm.
The lm_head is the target's, and so is the embedding unless the head has its own.
`T` packed tokens, `D` hidden width, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F

from draftproof.engine.models.base import Cache, Where
from draftproof.engine.models.checkpoint import CheckpointError, DenseConfig, open_tensors, read_config, take
from draftproof.engine.models.grouped_config import GroupedConfig, eagle_layer
from draftproof.engine.models.hybrid_config import HybridConfig, eagle_config
from draftproof.engine.models.layers import Attention, cache_shape, inverse_frequencies, mlp, read_layer, rms_norm

EMBEDDING = "embed_tokens.weight"


class Lender(Protocol):
    """A target whose embedding [V, D] and lm_head [V, D] its drafts use."""

    width: int
    vocab: int
    embedding: torch.Tensor
    lm_head: torch.Tensor


class EagleHead:
    """A `Head`. Tensors: fc.weight [D, 2D], layers.0.self_attn.*, layers.0.mlp.*, layers.0.post_attention_layernorm."""

    def __init__(self, config: DenseConfig, tensors: Mapping[str, torch.Tensor], target: Lender) -> None:
        _check_fits(config, target)
        self.config = config
        self.fc = take(tensors, "fc.weight", config.width, 2 * config.width)
        self.layer = read_layer(config, tensors, "layers.0")
        self.lm_head, self.embedding = target.lm_head, target.embedding
        if EMBEDDING in tensors:
            self.embedding = take(tensors, EMBEDDING, config.vocab, config.width)
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


def head_config(target: DenseConfig | HybridConfig | GroupedConfig) -> DenseConfig:
    """The config of a head of the target's own sizes."""
    if isinstance(target, GroupedConfig):
        return eagle_layer(target)
    return eagle_config(target) if isinstance(target, HybridConfig) else replace(target, layers=1)


def load_head(directory: str | Path, target: Lender, device: str | torch.device, dtype: torch.dtype) -> EagleHead:
    """Read a head's checkpoint directory. Raises CheckpointError."""
    tensors = open_tensors(directory, device, dtype)
    head = EagleHead(read_config(directory), tensors, target)
    tensors.refuse_unread()
    return head


def _check_fits(head: DenseConfig, target: Lender) -> None:
    expected = {
        "num_hidden_layers": (head.layers, 1),
        "hidden_size": (head.width, target.width),
        "vocab_size": (head.vocab, target.vocab),
    }
    for field, (got, allowed) in expected.items():
        if got != allowed:
            raise CheckpointError(f"{field} of the head is {got}; allowed for this target: {allowed}")
