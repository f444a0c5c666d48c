"""The interface of recurrent states, whichever way a round is committed.

`S` state slots (slot 0 is reserved for padding), `B` rows of a launch, `A` allocated steps, `L` linear layers, `C` conv
width, `Q` channels of the convolution, `U` value heads, `H` key size, `E` value size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from draftproof.engine.models.base import PrefillStates, RecurrentWeights, VerifyStates
from draftproof.engine.states.checkpoints import LogicalStates, StateCheckpoints


class StateCache(Protocol):
    """States of every linear layer and slot: ssm [L, S, U, H, E], and their checkpoints."""

    ssm: Tensor
    checkpoints: StateCheckpoints

    def begin(self, new_slots: Tensor) -> None:
        """Begin requests in these slots, before the first layer runs."""

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

    def install(self, state_slots: Tensor, states: LogicalStates, checkpoints: LogicalStates | None) -> None:
        """Begin requests in state_slots [B] from these logical states, as `logical_states` returns them.

        Set their `checkpoints` as well, if there are any.
        """

    def flush(self, state_slots: Tensor) -> None:
        """Make the committed state of these slots plain: nothing pending."""

    def logical_states(self, state_slots: Tensor) -> LogicalStates:
        """Return copies of the logical states: conv [L, B, C-1, Q] and ssm [L, B, U, H, E]."""
        ...


def start(pool: Tensor, new_slots: Tensor, value: Tensor | None) -> None:
    """Put what a new request begins with (zero if None) into slots `new_slots` of a layer's pool."""
    if value is None:
        pool[new_slots] = 0
    else:
        pool[new_slots] = value.to(pool.dtype)


def restore(states: StateCache, served: Mapping[int, int]) -> None:
    """Begin requests in state slots from the states in these places, which are their last checkpoints from now on."""
    state_slots, places = (torch.tensor([*of], device=states.ssm.device) for of in (served, served.values()))
    copies = states.checkpoints.at(places)
    states.install(state_slots, copies, copies)
