"""Decoder layers of any kind over the residual stream. `T` packed tokens, `D` hidden width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.base import BEFORE_NORM, AttentionMetadata, Cache, LayerOutputs
from draftproof.engine.models.layers import rms_norm


class Mixer(Protocol):
    """What moves information between tokens: attention, or a recurrence."""

    def __call__(self, x: Tensor, metadata: AttentionMetadata, cache: Cache) -> Tensor:
        """[T, D] -> [T, D]."""
        ...

    def tensors(self) -> tuple[Tensor, ...]: ...


class FeedForward(Protocol):
    """One MLP, or a mixture of experts."""

    def __call__(self, x: Tensor) -> Tensor:
        """[T, D] -> [T, D]."""
        ...

    def tensors(self) -> tuple[Tensor, ...]: ...


@dataclass(frozen=True)
class Layer:
    """norm [D], the mixer, mlp_norm [D], the MLP."""

    norm: Tensor
    mixer: Mixer
    mlp_norm: Tensor
    mlp: FeedForward

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.norm, *self.mixer.tensors(), self.mlp_norm, *self.mlp.tensors())


def run_layers(
    layers: Sequence[Layer],
    final_norm: Tensor,
    residual: Tensor,
    metadata: AttentionMetadata,
    cache: Cache,
    eps: float,
    layer_outputs: LayerOutputs | None = None,
) -> Tensor:
    """Run the residual stream [T, D], changed in place, through all layers and the final norm: [T, D].

    Each norm is fused with the addition before it.
    """
    following = [*(layer.norm for layer in layers[1:]), final_norm]
    normed = rms_norm(residual, layers[0].norm, eps)
    for i, (layer, norm) in enumerate(zip(layers, following, strict=True)):
        kernels.add_rms_norm(normed, residual, layer.mixer(normed, metadata, cache), layer.mlp_norm, eps)
        kernels.add_rms_norm(normed, residual, layer.mlp(normed), norm, eps)
        record_layer(layer_outputs, i, residual)
    record_layer(layer_outputs, BEFORE_NORM, residual)
    return normed


def record_layer(layer_outputs: LayerOutputs | None, layer: int, residual: Tensor) -> None:
    """Record a layer's output [T, D], as a copy where it is wanted, since the stream changes in place."""
    if layer_outputs is not None:
        layer_outputs.record(layer, residual.clone() if layer in layer_outputs.layers else residual)
