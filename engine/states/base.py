"""What the engine asks of the memory of recurrent layers, whichever way a round is committed.

`S` state slots (slot 0 is reserved for padding), `B` rows of a launch, `A` allocated steps, `L` linear layers, `C` conv
width, `Q` channels of the convolution, `U` value heads, `H` key size, `E` value size.
"""

from __future__ import annotations

from typing import Protocol

import torch

from draftproof.engine.models.base import Chunks, RecurrentWeights, StateShape, VerifyRows

Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]
Plain = tuple[torch.Tensor, torch.Tensor]


class Pools(Protocol):
    """Tensors by name: an arena."""

    def __getitem__(self, name: str) -> torch.Tensor: ...


class StateCache(Protocol):
    """States of every linear layer and slot: `ssm` [L, S, U, H, E] is committed, and of the checkpoints there are the
    windows `kept_conv` [L, S, C-1, Q] and `kept_ssm` [L, S, U, H, E]."""

    ssm: torch.Tensor
    kept_conv: torch.Tensor
    kept_ssm: torch.Tensor

    def begin(self, chunks: Chunks) -> None:
        """Requests begin in the slots chunks.fresh; before the first layer runs."""

    def prefill(
        self, layer: int, weights: RecurrentWeights, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, chunks: Chunks
    ) -> torch.Tensor:
        """Packed x [T, Q] and a, b [T, U] in place of the committed state: [T, U, E]."""
        ...

    def verify(
        self, layer: int, weights: RecurrentWeights, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, rows: VerifyRows
    ) -> torch.Tensor:
        """x [B * W, Q] and a, b [B * W, U] from the logical state of each row's slot, which stays: [B * W, U, E]."""
        ...

    def commit(self, slots: torch.Tensor, last_correct_step_indices: torch.Tensor) -> None:
        """The state after verify row last_correct_step_indices [B] becomes that of slots [B]; -1: nothing does."""

    def checkpoint(self, slots: torch.Tensor, steps: torch.Tensor) -> None:
        """Keep the state after verify row steps [B] of the round just committed; -1: none."""

    def flush(self, slots: torch.Tensor) -> None:
        """Make the committed state of these slots plain: nothing pending."""

    def plain(self, slots: torch.Tensor) -> Plain:
        """Copies of the logical states: conv [L, B, C-1, Q] and ssm [L, B, U, H, E]."""
        ...


def kept_shapes(shape: StateShape, slots: int) -> Shapes:
    """The arena entries of the checkpoints: one a slot."""
    window, matrix = (shape.conv - 1, shape.channels), (shape.value_heads, shape.key_dim, shape.value_dim)
    return {
        "kept.conv": ((shape.layers, slots, *window), shape.dtype),
        "kept.ssm": ((shape.layers, slots, *matrix), shape.state_dtype),
    }


def start(pool: torch.Tensor, fresh: torch.Tensor, value: torch.Tensor | None) -> None:
    """Put what a new request begins with (zero if None) into slots `fresh` of a layer's pool."""
    if value is None:
        pool[fresh] = 0
    else:
        pool[fresh] = value.to(pool.dtype)
