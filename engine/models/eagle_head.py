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
from draftproof.engine.models.layers import Attention, LayerSizes, inverse_frequencies, mlp, read_layer, rms_norm
from draftproof.engine.models.target import SharesEmbedding, shared_weights
from draftproof.properties.values.checkpoint_config import read_config
from draftproof.properties.values.checkpoint_config.llama import LlamaConfig, check_head_fits

EMBEDDING = "embed_tokens.weight"


class EagleHead:
    """A `Head`. Tensors: fc.weight [D, 2D], layers.0.self_attn.*, layers.0.mlp.*, layers.0.post_attention_layernorm."""

    def __init__(self, config: LlamaConfig, tensors: Mapping[str, Tensor], target: SharesEmbedding) -> None:
        self.sizes = sizes = LayerSizes.of(config)
        self.fc = take(tensors, "fc.weight", sizes.hidden_size, 2 * sizes.hidden_size)
        self.layer = read_layer(sizes, tensors, "layers.0")
        self.lm_head, self.embedding = target.lm_head, target.embedding
        if EMBEDDING in tensors:
            self.embedding = take(tensors, EMBEDDING, config.vocab_size, sizes.hidden_size)
        self.cache_shape = sizes.cache_shape(1, self.fc.dtype)
        inv_freq = inverse_frequencies(config.rope_parameters, sizes.head_dim)
        self._attention = Attention(sizes, inv_freq.to(self.fc.device))

    def forward(self, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata, cache: Cache) -> Tensor:
        """ids [T], hidden_states [T, D] -> handed-on states [T, D]."""
        residual = F.linear(torch.cat((F.embedding(ids, self.embedding), hidden_states), dim=1), self.fc)
        attended = self._attention(0, self.layer, F.linear(residual, self.layer.qkv), metadata, cache)
        residual = residual + F.linear(attended, self.layer.out)
        return residual + mlp(self.layer, rms_norm(residual, self.layer.mlp_norm, self.sizes.rms_norm_eps))

    def logits(self, hidden_states: Tensor) -> Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        return F.linear(hidden_states, self.lm_head)

    def weights(self) -> tuple[Tensor, ...]:
        """Return every tensor that forward and logits read, each once."""
        return (*shared_weights(self), self.fc, *self.layer.tensors(), self._attention.inv_freq)


def load_head(
    directory: str | Path, target: SharesEmbedding, made_up: LlamaConfig, device: str | torch.device, dtype: torch.dtype
) -> EagleHead:
    """Read a head's directory; `made_up` is the head of the target's own sizes. Raises CheckpointError."""
    config, tensors = read_config(directory, LlamaConfig), open_tensors(directory, device, dtype)
    check_head_fits(config, made_up, f"{directory}/config.json")
    head = EagleHead(config, tensors, target)
    tensors.refuse_unread()
    return head
