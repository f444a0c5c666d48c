"""The built-in draft of Qwen3-Next and Qwen3.5: one full attention layer that predicts a token further.

x = fc(embedding of token i + 1, hidden i), embedding first, each after a norm of its own; one decoder layer; a final
norm, whose output is handed on and read by the target's lm_head. The embedding is the target's too.
`T` packed tokens, `D` hidden width, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.engine.models.base import AttentionMetadata, Cache, CacheShape
from draftproof.engine.models.checkpoint import take
from draftproof.engine.models.decoder import Layer, run_layers
from draftproof.engine.models.gated_attention import read_norm
from draftproof.engine.models.layers import rms_norm
from draftproof.engine.models.target import SharesEmbedding, shared_weights
from draftproof.properties.values.checkpoint_config.qwen3_next import GatedDeltaNetConfig


class Qwen3NextMtp:
    """A `Chain` of one layer: mtp.fc.weight [D, 2D], mtp.pre_fc_norm_{embedding,hidden}, mtp.layers.0.*, mtp.norm."""

    chain = True

    def __init__(
        self,
        config: GatedDeltaNetConfig,
        tensors: Mapping[str, Tensor],
        target: SharesEmbedding,
        layers: Sequence[Layer],
        cache_shape: CacheShape,
    ) -> None:
        width = config.hidden_size
        self.config, self.layers, self.cache_shape = config, layers, cache_shape
        self.fc = take(tensors, "mtp.fc.weight", width, 2 * width)
        self.embedding_norm = read_norm(tensors, "mtp.pre_fc_norm_embedding.weight", width)
        self.hidden_norm = read_norm(tensors, "mtp.pre_fc_norm_hidden.weight", width)
        self.norm = read_norm(tensors, "mtp.norm.weight", width)
        self.lm_head, self.embedding = target.lm_head, target.embedding

    def forward(
        self, layer: int, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata, cache: Cache
    ) -> tuple[Tensor, Tensor]:
        """ids [T], hidden_states [T, D] -> (states that logits are of, states handed on), the same [T, D].

        Raises IndexError for another layer than the first.
        """
        if layer:
            raise IndexError(f"invalid layer {layer}: expected 0 in a chain of one")
        eps = self.config.rms_norm_eps
        embedded = rms_norm(F.embedding(ids, self.embedding), self.embedding_norm, eps)
        concatenated = torch.cat((embedded, rms_norm(hidden_states, self.hidden_norm, eps)), dim=1)
        states = run_layers(self.layers, self.norm, F.linear(concatenated, self.fc), metadata, cache, eps)
        return states, states

    def logits(self, hidden_states: Tensor) -> Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        return F.linear(hidden_states, self.lm_head)

    def weights(self) -> tuple[Tensor, ...]:
        """Return every tensor that forward and logits read, each once."""
        layers = tuple(tensor for layer in self.layers for tensor in layer.tensors())
        return (*shared_weights(self), self.fc, self.embedding_norm, self.hidden_norm, *layers, self.norm)
