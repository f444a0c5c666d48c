"""An EAGLE-1 head (Li et al., "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", ICML 2024).

x = fc(embedding of token i + 1, hidden i), embedding first; one decoder layer without an input norm; no final norm.
The lm_head is the target's, and so is the embedding unless the head has its own.
`T` packed tokens, `D` hidden width, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.engine.models.base import AttentionMetadata, Cache
from draftproof.engine.models.checkpoint import open_tensors, take
from draftproof.engine.models.layers import LayerSizes, inverse_frequencies, read_attention, read_mlp, rms_norm
from draftproof.engine.models.target import LanguageModel
from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig, check_head_fits

_EMBEDDING = "embed_tokens.weight"


class EagleHead(LanguageModel):
    """A `Head`. Tensors: fc.weight [D, 2D], layers.0.self_attn.*, layers.0.mlp.*, layers.0.post_attention_layernorm."""

    takes = "after_norm"
    target_ids: Tensor | None = None

    def __init__(self, config: LlamaConfig, tensors: Mapping[str, Tensor], target: LanguageModel) -> None:
        sizes = LayerSizes.of(config)
        width, self._eps = sizes.hidden_size, sizes.rms_norm_eps
        self.fc = take(tensors, "fc.weight", width, 2 * width)
        inv_freq = inverse_frequencies(config.rope_parameters, sizes.head_dim)
        self.attention = read_attention(sizes, tensors, "layers.0.self_attn", 0, inv_freq)
        self.norm = take(tensors, "layers.0.post_attention_layernorm.weight", width)
        self.mlp = read_mlp(tensors, "layers.0.mlp", width, sizes.intermediate_size)
        self.lm_head, self.embedding = target.lm_head, target.embedding
        if _EMBEDDING in tensors:
            self.embedding = take(tensors, _EMBEDDING, config.vocab_size, width)
        self.cache_shape = sizes.cache_shape(1, self.fc.dtype)

    def forward(
        self, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata, cache: Cache
    ) -> tuple[Tensor, Tensor]:
        """ids [T], hidden_states [T, D] -> (states that logits are of, states handed on), the same [T, D]."""
        residual = F.linear(torch.cat((F.embedding(ids, self.embedding), hidden_states), dim=1), self.fc)
        residual = residual + self.attention(residual, metadata, cache)
        handed = residual + self.mlp(rms_norm(residual, self.norm, self._eps))
        return handed, handed

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.fc, *self.attention.tensors(), self.norm, *self.mlp.tensors())


def load_head(
    directory: str | Path, target: LanguageModel, made_up: LlamaConfig, device: str | torch.device, dtype: torch.dtype
) -> EagleHead:
    """Read a head's directory; `made_up` is the head of the target's own sizes. Raises CheckpointError."""
    config, tensors = read_config(directory, LlamaConfig), open_tensors(directory, device, dtype)
    check_head_fits(config, made_up, f"{directory}/config.json")
    head = EagleHead(config, tensors, target)
    tensors.refuse_unread()
    return head
