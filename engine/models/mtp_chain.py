"""The multi-token prediction layers that checkpoints of GLM-4-MoE and DeepSeek-V3 bring along.

Layer j is stored after the target's layers, as layer num_hidden_layers + j: x = eh_proj(enorm(embedding of token
i + 1 + j), hnorm(hidden)), embedding first; one decoder layer with experts; shared_head.norm, whose output is handed on
and read by the target's lm_head. The embedding is the target's too; a checkpoint may repeat either.
`T` packed tokens, `D` hidden width, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.engine.models.base import AttentionMetadata, Cache, CacheShape, Chain
from draftproof.engine.models.checkpoint import Tensors, take
from draftproof.engine.models.decoder import Layer, run_layers
from draftproof.engine.models.layers import rms_norm
from draftproof.engine.models.target import SharesEmbedding, shared_weights
from draftproof.errors import CheckpointError
from draftproof.properties.values.checkpoint_config.sparse import GroupedMoeConfig


@dataclass(frozen=True)
class NextTokenLayer:
    """projection [D, 2D], the norms [D] of its two inputs, the decoder layer, the norm [D] of its output."""

    projection: Tensor
    embedding_norm: Tensor
    hidden_norm: Tensor
    layer: Layer
    norm: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        """Return every tensor of the layer."""
        return (self.projection, self.embedding_norm, self.hidden_norm, *self.layer.tensors(), self.norm)


class MtpChain:
    """A `Chain`: the first MTP layers of the target's checkpoint, a decoder layer for each given."""

    chain = True

    def __init__(
        self,
        config: GroupedMoeConfig,
        tensors: Mapping[str, Tensor],
        target: SharesEmbedding,
        decoders: Sequence[Layer],
        cache_shape: CacheShape,
    ) -> None:
        self.config, self.cache_shape = config, cache_shape
        self.lm_head, self.embedding = target.lm_head, target.embedding
        prefixes = tuple(f"model.layers.{config.num_hidden_layers + j}." for j in range(len(decoders)))
        self.layers = tuple(
            _read(config, tensors, prefix, layer) for prefix, layer in zip(prefixes, decoders, strict=True)
        )
        _check_repeated(tensors, prefixes, target)
        if isinstance(tensors, Tensors):
            tensors.refuse_unread_of(*prefixes)

    def forward(
        self, layer: int, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata, cache: Cache
    ) -> tuple[Tensor, Tensor]:
        """ids [T], hidden_states [T, D] -> (states that logits are of, states handed on), the same [T, D]."""
        eps, weights = self.config.rms_norm_eps, self.layers[layer]
        embedded = rms_norm(F.embedding(ids, self.embedding), weights.embedding_norm, eps)
        concatenated = torch.cat((embedded, rms_norm(hidden_states, weights.hidden_norm, eps)), dim=1)
        residual = F.linear(concatenated, weights.projection)
        states = run_layers((weights.layer,), weights.norm, residual, metadata, cache, eps)
        return states, states

    def logits(self, hidden_states: Tensor) -> Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        return F.linear(hidden_states, self.lm_head)

    def weights(self) -> tuple[Tensor, ...]:
        """Return every tensor that forward and logits read, each once."""
        return (*shared_weights(self), *(tensor for layer in self.layers for tensor in layer.tensors()))


class FirstLayer:
    """A `Head`: the first layer of a chain, which takes its own output again and again."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self.cache_shape = chain.cache_shape

    def forward(self, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata, cache: Cache) -> Tensor:
        """ids [T], hidden_states [T, D] -> handed-on states [T, D]."""
        return self._chain.forward(0, ids, hidden_states, metadata, cache)[1]

    def logits(self, hidden_states: Tensor) -> Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        return self._chain.logits(hidden_states)

    def weights(self) -> tuple[Tensor, ...]:
        """Return the chain's."""
        return self._chain.weights()


def _check_repeated(tensors: Mapping[str, Tensor], prefixes: tuple[str, ...], target: SharesEmbedding) -> None:
    """Raise CheckpointError if what a layer repeats of its target's embedding and lm_head differs from them."""
    for name, original in (("embed_tokens.weight", target.embedding), ("shared_head.head.weight", target.lm_head)):
        for prefix in prefixes:
            if prefix + name in tensors and not torch.equal(tensors[prefix + name], original):
                raise CheckpointError(f"invalid tensor {prefix}{name}: expected none, or the same as the target's")


def _read(config: GroupedMoeConfig, tensors: Mapping[str, Tensor], prefix: str, layer: Layer) -> NextTokenLayer:
    width = config.hidden_size
    return NextTokenLayer(
        projection=take(tensors, f"{prefix}eh_proj.weight", width, 2 * width),
        embedding_norm=take(tensors, f"{prefix}enorm.weight", width),
        hidden_norm=take(tensors, f"{prefix}hnorm.weight", width),
        layer=layer,
        norm=take(tensors, f"{prefix}shared_head.norm.weight", width),
    )
