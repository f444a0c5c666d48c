"""The common part of all targets that are read from checkpoints: one causal pass from token zero, no cache.

They compute in the dtype of their tensors: float64, except in the run that tells how far rounding carries.

Shapes: `n` tokens, `D` hidden size, `N` key-value heads, `H` head size, `V` vocabulary.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from draftproof.properties.formats.checkpoint_config.base import TargetConfig, invalid
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig
from draftproof.properties.values.drafts import StateOf
from draftproof.properties.values.scenario import LayerType
from draftproof.reference.models.layers import KV, Places, look_up, mlp, rms_norm, with_prefix
from draftproof.reference.models.tensors import EMBEDDING, FINAL_NORM, LM_HEAD, Shapes, read_tensors

C = TypeVar("C", bound=TargetConfig)


@dataclass(frozen=True)
class TargetPass:
    """What a target computes over a sequence; row i belongs to position i.

    `hidden` [n, D] is after the final norm, `logits` [n, V] for the token after each position, `kv` per layer of full
    attention (k, v), each [n, N, H], k after RoPE, `states` per linear layer [n, size]: what it keeps after each token
    (`qwen3_next_layer.delta_net`), `layers` every decoder layer's output [n, D], residual included, before any norm.
    `gap` is how close the closest choice of experts was (`FedForward`).
    """

    hidden: Tensor
    logits: Tensor
    kv: tuple[KV, ...]
    states: tuple[Tensor, ...] = ()
    layers: tuple[Tensor, ...] = ()
    gap: float = math.inf


@dataclass(frozen=True)
class HeadPass:
    """The outputs of a draft's pass.

    States `g` [n, D], `logits` [n, V], and (k, v) of each layer, each [n, N, H], k after RoPE; `gap` as in TargetPass.
    """

    g: Tensor
    logits: Tensor
    kv: tuple[KV, ...]
    gap: float = math.inf


class FedForward(NamedTuple):
    """What an MLP or experts make of x [n, D], and the least that a chosen expert had over one that was not."""

    out: Tensor
    gap: float = math.inf


class LayerPass(NamedTuple):
    """A layer's output [n, D], its KV entries or its states, and `gap` as in FedForward."""

    out: Tensor
    kept: KV | Tensor
    gap: float


class PassLayer(Protocol):
    """A draft's layer that runs one pass over tokens and vectors."""

    def forward(self, tokens: Sequence[int], hidden: Tensor) -> HeadPass: ...


class DraftLayer(Protocol):
    """A layer that is fed with the target's last states, which it `takes` before or after the final norm."""

    takes: StateOf

    def forward(self, tokens: Sequence[int], hidden: Tensor, places: Places | None = None) -> HeadPass: ...


class ReferenceCheckpointTarget(ABC, Generic[C]):
    """A target with its tensors by name, and each layer's in `layers`; nothing is kept between passes."""

    def __init__(self, config: C, tensors: Mapping[str, Tensor]) -> None:
        self.config, self.tensors = config, tensors
        self.embedding, self.final_norm = tensors[EMBEDDING], tensors[FINAL_NORM]
        # Some tied checkpoints store the shared matrix a second time; the embedding is the one that counts.
        self.lm_head = self.embedding if config.tie_word_embeddings else tensors[LM_HEAD]
        self.layers = tuple(with_prefix(tensors, f"model.layers.{i}.") for i in range(config.num_hidden_layers))

    @classmethod
    def read(cls, config: C, directory: str | Path, dtype: torch.dtype) -> ReferenceCheckpointTarget[C]:
        """Read the tensors of a directory as `dtype`. Raises CheckpointError."""
        spare = (LM_HEAD,) if config.tie_word_embeddings else ()
        prefixes = cls.unread_prefixes(config)
        shapes = cls.shapes(config)
        return cls(config, read_tensors(directory, shapes, ignored=spare, ignored_prefixes=prefixes, dtype=dtype))

    @property
    def dtype(self) -> torch.dtype:
        """What the target computes in."""
        return self.embedding.dtype

    @classmethod
    def shapes(cls, config: C) -> Shapes:
        """Return name and shape of every tensor; no `lm_head.weight` where it is the embedding."""
        table, shapes = (config.vocab_size, config.hidden_size), Shapes()
        for i in range(config.num_hidden_layers):
            shapes |= {f"model.layers.{i}.{name}": shape for name, shape in cls.layer_shapes(config, i).items()}
        shapes |= {EMBEDDING: table, FINAL_NORM: (config.hidden_size,)}
        return shapes if config.tie_word_embeddings else {**shapes, LM_HEAD: table}

    @staticmethod
    @abstractmethod
    def layer_shapes(config: C, index: int) -> Shapes:
        """Return name and shape of every tensor of a layer, names relative to it."""

    @staticmethod
    @abstractmethod
    def eagle_config(config: C) -> LlamaConfig:
        """Return the configuration of an EAGLE head of the target's own sizes. Raises CheckpointError."""

    @staticmethod
    def unread_prefixes(config: C) -> tuple[str, ...]:
        """Return what the names of those tensors of the checkpoint begin with that the target has no use for."""
        return ()

    @property
    def layer_types(self) -> tuple[LayerType, ...]:
        """The type of every layer."""
        full: LayerType = "full_attention"
        return (full,) * self.config.num_hidden_layers

    @abstractmethod
    def mixer(
        self, x: Tensor, weights: Mapping[str, Tensor], places: Places | None = None
    ) -> tuple[Tensor, KV | Tensor]:
        """Return attention or delta net of a layer over normed x [n, D]: [n, D], and its KV entries or its states.

        A delta net has no places: rows follow one another.
        """

    def feed_forward(self, x: Tensor, weights: Mapping[str, Tensor]) -> FedForward:
        """Return the MLP of a layer over normed x [n, D]."""
        return FedForward(mlp(x, weights))

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return a norm of the target's kind over x [n, D]."""
        return rms_norm(x, weight, self.config.rms_norm_eps)

    def run_layer(self, x: Tensor, weights: Mapping[str, Tensor], places: Places | None = None) -> LayerPass:
        """Run a decoder layer over x [n, D]: x + mixer(norm(x)), then that + feed_forward(norm(that))."""
        mixed, kept = self.mixer(self.norm(x, weights["input_layernorm.weight"]), weights, places)
        x = x + mixed
        fed, gap = self.feed_forward(self.norm(x, weights["post_attention_layernorm.weight"]), weights)
        return LayerPass(x + fed, kept, gap)

    def forward(self, tokens: Sequence[int], places: Places | None = None) -> TargetPass:
        """Run one causal pass, at positions 0 .. n-1 if none are given.

        Raises ValueError for no token, or one out of vocabulary.
        """
        x = look_up(self.embedding, tokens)
        kv, states, outputs, closest = list[KV](), list[Tensor](), list[Tensor](), math.inf
        for weights in self.layers:
            x, kept, gap = self.run_layer(x, weights, places)
            closest = min(closest, gap)
            if isinstance(kept, Tensor):
                states.append(kept)
            else:
                kv.append(kept)
            outputs.append(x)
        hidden = self.norm(x, self.final_norm)
        return TargetPass(hidden, hidden @ self.lm_head.T, tuple(kv), tuple(states), tuple(outputs), closest)

    def mtp_layers(self, directory: str | Path) -> tuple[DraftLayer, ...]:
        """Read the MTP layers of the target's directory. Raises CheckpointError, also where there are none."""
        expected = "another one, this has no MTP layers"
        raise invalid(str(directory), "architectures", list(self.config.architectures), expected)


def check_inputs(tokens: Sequence[int], hidden: Tensor, size: int) -> None:
    """Raise ValueError unless `hidden` has a row of `size` for every token."""
    if hidden.shape != (len(tokens), size):
        raise ValueError(f"invalid hidden of shape {tuple(hidden.shape)}: expected {(len(tokens), size)}")
