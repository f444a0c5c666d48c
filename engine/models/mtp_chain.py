"""The multi-token prediction layers that checkpoints bring along.

Layer j: x = projection(norm of the embedding of token i + 1 + j, norm of hidden), embedding first; one decoder layer; a
final norm, and an lm_head on its output. Embedding and lm_head are the layer's own or the target's. `T` packed tokens,
`D` hidden width, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.engine.models.base import AttentionMetadata, Cache, CacheShape, Chain
from draftproof.engine.models.decoder import Layer, run_layers
from draftproof.engine.models.layers import rms_norm
from draftproof.engine.models.target import LanguageModel


@dataclass(frozen=True)
class NextTokenLayer:
    """projection [D, 2D], the norms [D] of its two inputs, the decoder layer, the norm [D] of its output.

    lm_head and embedding [V, D] are its own, if it has them.
    """

    projection: Tensor
    embedding_norm: Tensor
    hidden_norm: Tensor
    layer: Layer
    norm: Tensor
    lm_head: Tensor | None = None
    embedding: Tensor | None = None

    def tensors(self) -> tuple[Tensor, ...]:
        own = tuple(tensor for tensor in (self.lm_head, self.embedding) if tensor is not None)
        return (self.projection, self.embedding_norm, self.hidden_norm, *self.layer.tensors(), self.norm, *own)


@dataclass(frozen=True)
class ChainForm:
    """What MTP layers take of the target and hand on, and whether the embedding at position 0 is zero."""

    takes: str = "after_norm"
    handed: str = "after_norm"
    masks_first: bool = False


class MtpChain(LanguageModel):
    """A `Chain` of the first MTP layers of the target's checkpoint."""

    target_ids: Tensor | None = None

    def __init__(
        self,
        target: LanguageModel,
        layers: Sequence[NextTokenLayer],
        eps: float,
        cache_shape: CacheShape,
        *,
        chain: bool,
        form: ChainForm | None = None,
    ) -> None:
        self.layers, self._eps, self.cache_shape = layers, eps, cache_shape
        self.chain, self._form = chain, form or ChainForm()
        self.takes = self._form.takes
        self.lm_head, self.embedding = target.lm_head, target.embedding

    def forward(
        self, layer: int, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata, cache: Cache
    ) -> tuple[Tensor, Tensor]:
        """ids [T], hidden_states [T, D] -> (states that logits are of, states handed on), both [T, D].

        Raises IndexError for a layer beyond the last.
        """
        if layer >= len(self.layers):
            raise IndexError(f"invalid layer {layer}: expected at most {len(self.layers) - 1}, the last of the chain")
        eps, weights = self._eps, self.layers[layer]
        embedded = F.embedding(ids, self.embedding if weights.embedding is None else weights.embedding)
        if self._form.masks_first:
            embedded = embedded.masked_fill((metadata.positions == 0).unsqueeze(1), 0)
        embedded = rms_norm(embedded, weights.embedding_norm, eps)
        concatenated = torch.cat((embedded, rms_norm(hidden_states, weights.hidden_norm, eps)), dim=1)
        residual = F.linear(concatenated, weights.projection)
        states = run_layers((weights.layer,), weights.norm, residual, metadata, cache, eps)
        return states, residual if self._form.handed == "before_norm" else states

    def layer_logits(self, layer: int, hidden_states: Tensor) -> Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        own = self.layers[layer].lm_head
        return self.logits(hidden_states) if own is None else F.linear(hidden_states, own)

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(tensor for layer in self.layers for tensor in layer.tensors())


class FirstLayer:
    """A `Head`: the first layer of a chain, which takes its own output again and again."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self.cache_shape, self.takes, self.target_ids = chain.cache_shape, chain.takes, chain.target_ids

    def forward(
        self, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata, cache: Cache
    ) -> tuple[Tensor, Tensor]:
        """ids [T], hidden_states [T, D] -> (states that logits are of, states handed on), both [T, D]."""
        return self._chain.forward(0, ids, hidden_states, metadata, cache)

    def logits(self, hidden_states: Tensor) -> Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        return self._chain.layer_logits(0, hidden_states)

    def weights(self) -> tuple[Tensor, ...]:
        """Return the chain's."""
        return self._chain.weights()
