"""What all targets that are read from checkpoints share. `T` packed tokens, `D` hidden width, `V` vocabulary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof.engine.models.base import AttentionMetadata, Cache, CacheShape, Chain, LayerOutputs, StateShape
from draftproof.engine.models.checkpoint import take
from draftproof.engine.models.decoder import Layer, run_layers
from draftproof.properties.formats.checkpoint_config.base import FULL_ATTENTION, TargetConfig
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig
from draftproof.properties.lib.errors import CheckpointError

C = TypeVar("C", bound=TargetConfig)
_SUM_BITS = 46
"""Weights of a vocabulary sum up to less than 2^47: their products with shares of 16 bits are exact."""


class LanguageModel(ABC):
    """A model with an embedding [V, D] and an lm_head [V, D]: a target, or a draft that uses its target's."""

    embedding: Tensor
    lm_head: Tensor

    def logits(self, hidden_states: Tensor) -> Tensor:
        """[T, D] -> [T, V], in the model's dtype."""
        return F.linear(hidden_states, self.lm_head)

    def weights(self) -> tuple[Tensor, ...]:
        """Return every tensor that the model reads, each once."""
        every = (self.embedding, self.lm_head, *self.tensors())
        return tuple({id(tensor): tensor for tensor in every}.values())

    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """Return all but embedding and lm_head."""


class CheckpointTarget(LanguageModel, Generic[C]):
    """A `Target` of tensors named as in a Hugging Face checkpoint; their device and dtype are the model's.

    An architecture sets `cache_shape`, `layers` and `norm`.
    """

    layers: Sequence[Layer]
    norm: Tensor
    cache_shape: CacheShape
    logit_units = 1 << 20

    def __init__(self, config: C, tensors: Mapping[str, Tensor], prefix: str = "model") -> None:
        self.config = config
        self.width, self.vocab = config.hidden_size, config.vocab_size
        self.layer_types: tuple[str, ...] = (FULL_ATTENTION,) * config.num_hidden_layers
        self.state_shape: StateShape | None = None
        self.embedding = take(tensors, f"{prefix}.embed_tokens.weight", self.vocab, self.width)
        # Some writers leave a tied lm_head out, some repeat it; config.json decides.
        tied = config.tie_word_embeddings
        self.lm_head = self.embedding if tied else take(tensors, "lm_head.weight", self.vocab, self.width)
        self.hidden_dtype = self.embedding.dtype

    def forward(
        self, ids: Tensor, metadata: AttentionMetadata, cache: Cache, layer_outputs: LayerOutputs | None = None
    ) -> Tensor:
        """Return hidden states [T, D] after the final norm; `layer_outputs` is told of the output of every layer."""
        residual = F.embedding(ids, self.embedding)
        return run_layers(self.layers, self.norm, residual, metadata, cache, self.config.rms_norm_eps, layer_outputs)

    def token_weights(self, logits: Tensor, temperatures: Tensor) -> Tensor:
        """See `SampledTarget`: softmax in float32 without its sum, as whole numbers (S-SAMPLE-13)."""
        values = logits.float()
        divisors = torch.where(temperatures > 0, temperatures, 1).to(values.dtype)[:, None]
        likely = ((values - values.amax(1, keepdim=True)) / divisors).exp()
        whole = (likely * 2.0 ** (_SUM_BITS - (logits.shape[1] - 1).bit_length())).to(torch.int64)
        return torch.where(temperatures[:, None] > 0, whole, 0)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors of the layers and the final norm."""
        return (*(tensor for layer in self.layers for tensor in layer.tensors()), self.norm)

    @staticmethod
    @abstractmethod
    def eagle_config(config: C) -> LlamaConfig:
        """Return the configuration of an EAGLE head of the target's own sizes. Raises CheckpointError."""

    def built_in_draft(self, config: Any, tensors: Mapping[str, Tensor], count: int | None, *, chain: bool) -> Chain:
        """Return the first `count` MTP layers of the checkpoint, or all, of a configuration object that is only read.

        Without `chain` each takes the target's hidden states. Raises CheckpointError if it has none.
        """
        raise CheckpointError(f"invalid built_in True: expected False, {self.config.architecture} has no MTP layers")

    def unread_prefixes(self) -> tuple[str, ...]:
        """Return what the names of those tensors of the checkpoint begin with that the target has no use for."""
        return ()
