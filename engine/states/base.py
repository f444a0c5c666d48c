"""The interface of recurrent states, whichever way a round is committed.

`S` state slots (slot 0 is reserved for padding), `B` rows of a launch, `A` allocated steps, `L` linear layers, `C` conv
width, `Q` channels of the convolution, `U` value heads, `H` key size, `E` value size.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from draftproof.engine.models.base import PrefillStates, RecurrentWeights, StateShape, VerifyStates

Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]
LogicalStates = tuple[Tensor, Tensor]


class Pools(Protocol):
    """Tensors by name: an arena."""

    def __getitem__(self, name: str) -> Tensor: ...


class StateCache(Protocol):
    """States of every linear layer and slot: ssm and checkpoint_ssm [L, S, U, H, E], checkpoint_conv [L, S, C-1, Q]."""

    ssm: Tensor
    checkpoint_conv: Tensor
    checkpoint_ssm: Tensor

    def begin(self, states: PrefillStates) -> None:
        """Begin requests in states.new_slots, before the first layer runs."""

    def prefill(
        self, layer: int, weights: RecurrentWeights, x: Tensor, a: Tensor, b: Tensor, states: PrefillStates
    ) -> Tensor:
        """Advance the committed states by packed x [T, Q] and a, b [T, U]: [T, U, E]."""
        ...

    def verify(
        self, layer: int, weights: RecurrentWeights, x: Tensor, a: Tensor, b: Tensor, states: VerifyStates
    ) -> Tensor:
        """Run x [B * W, Q] and a, b [B * W, U] from each row's logical state, which stays: [B * W, U, E]."""
        ...

    def keep_path(self, state_slots: Tensor, accept_index: Tensor) -> Tensor:
        """Keep rows accept_index [B, P] of the tree that was verified, -1 behind the last: the steps where they are."""
        ...

    def commit(self, state_slots: Tensor, last_correct_step_indices: Tensor) -> None:
        """Commit the state after verify row last_correct_step_indices [B] to state_slots [B]; -1: nothing.

        A row of a tree is named by its step, see keep_path.
        """

    def checkpoint(self, state_slots: Tensor, steps: Tensor) -> None:
        """Keep the state after verify row steps [B] of the round just committed; -1: none."""

    def restore(self, state_slots: Tensor, checkpoints: Tensor) -> None:
        """Begin requests in state_slots [B] from copies of these checkpoints [B], which become theirs, too."""

    def install(self, state_slots: Tensor, states: LogicalStates, checkpoints: LogicalStates | None) -> None:
        """Set state_slots [B] to these logical states, as `logical_states` returns them, with nothing pending.

        Set their `checkpoints` as well, if there are any.
        """

    def flush(self, state_slots: Tensor) -> None:
        """Make the committed state of these slots plain: nothing pending."""

    def checkpoints(self, state_slots: Tensor) -> LogicalStates:
        """Return copies of the checkpoints of these slots, in the shapes of `logical_states`."""
        ...

    def logical_states(self, state_slots: Tensor) -> LogicalStates:
        """Return copies of the logical states: conv [L, B, C-1, Q] and ssm [L, B, U, H, E]."""
        ...


def checkpoint_shapes(shape: StateShape, slots: int) -> Shapes:
    """Return the arena entries of the checkpoints: one a slot."""
    return {
        "checkpoint.conv": ((shape.layers, slots, *shape.window), shape.dtype),
        "checkpoint.ssm": ((shape.layers, slots, *shape.matrices), shape.state_dtype),
    }


def start(pool: Tensor, new_slots: Tensor, value: Tensor | None) -> None:
    """Put what a new request begins with (zero if None) into slots `new_slots` of a layer's pool."""
    if value is None:
        pool[new_slots] = 0
    else:
        pool[new_slots] = value.to(pool.dtype)


def restore(into: LogicalStates, kept: LogicalStates, state_slots: Tensor, checkpoints: Tensor) -> None:
    """Copy `checkpoints` of `kept` into state slots of pools, and into the checkpoints that these slots have."""
    for pool, of_checkpoints in zip(into, kept, strict=True):
        pool[:, state_slots] = of_checkpoints[:, checkpoints]
        of_checkpoints[:, state_slots] = of_checkpoints[:, checkpoints]
