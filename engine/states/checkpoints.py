"""The checkpoints of state slots, and behind them copies that belong to no request, from which requests begin.

`L` linear layers, `B` rows of a launch, `C` conv width, `Q` channels of the convolution, `U` value heads, `H` key size,
`E` value size. State slot 0 is reserved for padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from draftproof.engine.models.base import StateShape

LogicalStates = tuple[Tensor, Tensor]
Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]


class Pools(Protocol):
    """Tensors by name: an arena."""

    def __getitem__(self, name: str) -> Tensor: ...


class StateCheckpoints:
    """Pools conv [L, places, C-1, Q] and ssm [L, places, U, H, E] with a place for each state slot, and for copies.

    With two `turns` a state slot has a second place, behind all others, and its checkpoints take turns: the last one
    stays as it is while the next step makes another. Source: SGLang's `mamba_ping_pong_track_buffer`.
    """

    def __init__(self, pools: Pools, slots: int, turns: int = 1) -> None:
        self.conv, self.ssm = pools["checkpoint.conv"], pools["checkpoint.ssm"]
        self._turns, self._turn = turns, torch.zeros(slots, dtype=torch.int64, device=self.ssm.device)
        self.second = self.ssm.shape[1] - (turns - 1) * slots
        """How far the second place of a slot is behind its first."""

    def begin(self, state_slots: Tensor) -> None:
        """Begin requests whose first checkpoint, if they have one, is in the first place of their slots."""
        self._turn[state_slots] = 0

    def places(self, state_slots: Tensor) -> Tensor:
        """Return the places of the last checkpoints of these slots."""
        return state_slots + self._turn[state_slots] * self.second

    def advance(self, state_slots: Tensor, steps: Tensor) -> Tensor:
        """Go on to the next checkpoints of slots [B], and return their places; where `steps` [B] are -1, none is."""
        turn = self._turn[state_slots]
        self._turn[state_slots] = torch.where(steps < 0, turn, (turn + 1) % self._turns)
        return self.places(state_slots)

    def of(self, state_slots: Tensor) -> LogicalStates:
        """Return copies of the last checkpoints of these slots."""
        return self.at(self.places(state_slots))

    def at(self, places: Tensor) -> LogicalStates:
        """Return copies of what is in these places."""
        return self.conv[:, places], self.ssm[:, places]

    def put(self, state_slots: Tensor, states: LogicalStates) -> None:
        """Set the checkpoints of requests that begin in these slots."""
        self.begin(state_slots)
        self.conv[:, state_slots], self.ssm[:, state_slots] = states

    def keep(self, copies: Mapping[int, int]) -> None:
        """Copy to each such place the checkpoint in another."""
        into, places = (torch.tensor([*of], device=self.ssm.device) for of in (copies, copies.values()))
        for pool in (self.conv, self.ssm):
            pool[:, into] = pool[:, places]


def checkpoint_shapes(shape: StateShape, places: int) -> Shapes:
    """Return the arena entries of the checkpoints."""
    return {
        "checkpoint.conv": ((shape.layers, places, *shape.window), shape.dtype),
        "checkpoint.ssm": ((shape.layers, places, *shape.matrices), shape.state_dtype),
    }
