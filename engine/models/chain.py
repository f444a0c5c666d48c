"""The multi-token prediction layers that checkpoints of GLM-4-MoE and DeepSeek-V3 bring along, and chains of one.

Layer j is stored after the target's layers, as layer num_hidden_layers + j: x = eh_proj(enorm(embedding of token
i + 1 + j), hnorm(hidden)), embedding first; one decoder layer with experts; shared_head.norm, whose output is handed on
and read by the target's lm_head. The embedding is the target's too; a checkpoint may repeat either.
`T` packed tokens, `D` hidden width, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from draftproof.engine.models.base import Cache, Head, Where
from draftproof.engine.models.checkpoint import CheckpointError, Tensors, take
from draftproof.engine.models.config_fields import target_fields
from draftproof.engine.models.decoder import run_layers
from draftproof.engine.models.eagle_head import Lender
from draftproof.engine.models.grouped import GroupedLayer, grouped_cache_shape, mtp_prefixes, read_grouped_layer
from draftproof.engine.models.grouped_config import GroupedConfig, parse_grouped
from draftproof.engine.models.layers import rms_norm


@dataclass(frozen=True)
class NextTokenLayer:
    """projection [D, 2D], the norms [D] of its two inputs, the decoder layer, the norm [D] of its output."""

    projection: torch.Tensor
    embedding_norm: torch.Tensor
    hidden_norm: torch.Tensor
    layer: GroupedLayer
    norm: torch.Tensor

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return (self.projection, self.embedding_norm, self.hidden_norm, *self.layer.tensors(), self.norm)


class MtpChain:
    """A `Chain`: the first `count` MTP layers of the target's checkpoint."""

    chain = True

    def __init__(self, config: GroupedConfig, tensors: Mapping[str, torch.Tensor], target: Lender, count: int) -> None:
        self.config = config
        self.layers = tuple(_read(config, tensors, config.layers + j, j) for j in range(count))
        self.lm_head, self.embedding = target.lm_head, target.embedding
        self.cache_shape = grouped_cache_shape(config, count, self.lm_head.dtype)

    def forward(
        self, layer: int, ids: torch.Tensor, hidden: torch.Tensor, where: Where, cache: Cache
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """ids [T], hidden [T, D] -> (states that logits are of, states handed on), the same [T, D]."""
        eps, weights = self.config.norm_eps, self.layers[layer]
        embedded = rms_norm(F.embedding(ids, self.embedding), weights.embedding_norm, eps)
        joined = torch.cat((embedded, rms_norm(hidden, weights.hidden_norm, eps)), dim=1)
        residual = F.linear(joined, weights.projection)
        states = run_layers((weights.layer,), weights.norm, residual, where, cache, eps)
        return states, states

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        return F.linear(states, self.lm_head)

    def weights(self) -> tuple[torch.Tensor, ...]:
        """Every tensor that forward and logits read, each once."""
        shared = (self.embedding,) if self.embedding is self.lm_head else (self.embedding, self.lm_head)
        return (*shared, *(tensor for layer in self.layers for tensor in layer.tensors()))


class FirstLayer:
    """A `Head`: the first layer of a chain, which takes its own output again and again."""

    def __init__(self, chain: MtpChain) -> None:
        self._chain = chain
        self.cache_shape = chain.cache_shape

    def forward(self, ids: torch.Tensor, hidden: torch.Tensor, where: Where, cache: Cache) -> torch.Tensor:
        """ids [T], hidden [T, D] -> handed-on states [T, D]."""
        return self._chain.forward(0, ids, hidden, where, cache)[1]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        return self._chain.logits(hidden)

    def weights(self) -> tuple[torch.Tensor, ...]:
        """See MtpChain."""
        return self._chain.weights()


class OneLayer:
    """A `Chain` of one layer, which is a `Head` that hands on what its logits are of."""

    chain = True

    def __init__(self, head: Head) -> None:
        self._head = head
        self.cache_shape = head.cache_shape

    def forward(
        self, layer: int, ids: torch.Tensor, hidden: torch.Tensor, where: Where, cache: Cache
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """ids [T], hidden [T, D] -> (states that logits are of, states handed on), the same [T, D]."""
        if layer:
            raise IndexError(f"layer {layer} of a chain of one")
        states = self._head.forward(ids, hidden, where, cache)
        return states, states

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """[T, D] -> [T, V]."""
        return self._head.logits(states)

    def weights(self) -> tuple[torch.Tensor, ...]:
        """See Head."""
        return self._head.weights()


def build_chain(config: Any, tensors: Mapping[str, torch.Tensor], target: Lender, count: int | None = None) -> MtpChain:
    """The first `count` MTP layers, or all, of a configuration that is only read (config_fields).

    Raises CheckpointError, also for a tensor of theirs that has no meaning here.
    """
    sizes = parse_grouped(target_fields(config))
    if not sizes.mtp:
        raise CheckpointError("num_nextn_predict_layers is 0; allowed for the built-in draft: at least 1")
    chain = MtpChain(sizes, tensors, target, sizes.mtp if count is None else count)
    prefixes = mtp_prefixes(sizes)[: len(chain.layers)]
    _check_repeated(tensors, prefixes, target)
    if isinstance(tensors, Tensors):
        tensors.refuse_unread_of(*prefixes)
    return chain


def _check_repeated(tensors: Mapping[str, torch.Tensor], prefixes: tuple[str, ...], target: Lender) -> None:
    """What a layer repeats of its target's embedding and lm_head has to be the same."""
    for name, original in (("embed_tokens.weight", target.embedding), ("shared_head.head.weight", target.lm_head)):
        for prefix in prefixes:
            if prefix + name in tensors and not torch.equal(tensors[prefix + name], original):
                raise CheckpointError(f"tensor {prefix}{name} differs from the target's; allowed: none, or the same")


def _read(config: GroupedConfig, tensors: Mapping[str, torch.Tensor], number: int, index: int) -> NextTokenLayer:
    prefix, width = f"model.layers.{number}", config.width
    return NextTokenLayer(
        projection=take(tensors, f"{prefix}.eh_proj.weight", width, 2 * width),
        embedding_norm=take(tensors, f"{prefix}.enorm.weight", width),
        hidden_norm=take(tensors, f"{prefix}.hnorm.weight", width),
        layer=read_grouped_layer(config, tensors, prefix, index, sparse=True),
        norm=take(tensors, f"{prefix}.shared_head.norm.weight", width),
    )
