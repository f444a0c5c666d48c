"""Decoder layers of any kind over the residual stream. `T` packed tokens, `D` hidden width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from draftproof import kernels
from draftproof.engine.models.base import Cache, Kept, Where
from draftproof.engine.models.layers import rms_norm


class Mixer(Protocol):
    """What moves information between tokens: attention, or a recurrence."""

    def __call__(self, x: torch.Tensor, where: Where, cache: Cache) -> torch.Tensor:
        """[T, D] -> [T, D]."""
        ...

    def tensors(self) -> tuple[torch.Tensor, ...]: ...


class FeedForward(Protocol):
    """One MLP, or a mixture of experts."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[T, D] -> [T, D]."""
        ...

    def tensors(self) -> tuple[torch.Tensor, ...]: ...


class Layer(Protocol):
    """norm [D], the mixer, mlp_norm [D], the MLP."""

    @property
    def norm(self) -> torch.Tensor: ...

    @property
    def mixer(self) -> Mixer: ...

    @property
    def mlp_norm(self) -> torch.Tensor: ...

    @property
    def mlp(self) -> FeedForward: ...

    def tensors(self) -> tuple[torch.Tensor, ...]: ...


def run_layers(
    layers: Sequence[Layer],
    final_norm: torch.Tensor,
    residual: torch.Tensor,
    where: Where,
    cache: Cache,
    eps: float,
    kept: Kept | None = None,
) -> torch.Tensor:
    """The residual stream [T, D], changed in place, through all layers and the final norm: [T, D].

    Each norm is fused with the addition before it.
    """
    following = [*(layer.norm for layer in layers[1:]), final_norm]
    normed = rms_norm(residual, layers[0].norm, eps)
    for i, (layer, norm) in enumerate(zip(layers, following, strict=True)):
        kernels.add_rms_norm(normed, residual, layer.mixer(normed, where, cache), layer.mlp_norm, eps)
        kernels.add_rms_norm(normed, residual, layer.mlp(normed), norm, eps)
        tell(kept, i, residual)
    return normed


def tell(kept: Kept | None, layer: int, residual: torch.Tensor) -> None:
    """Tell `kept` of a layer's output [T, D]: a copy where it is wanted, since the stream changes in place."""
    if kept is not None:
        kept.saw(layer, residual.clone() if layer in kept.layers else residual)
