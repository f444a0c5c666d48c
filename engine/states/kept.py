"""Checkpoints that belong to no request: they are copies, and requests begin from copies of these.

They lie behind the checkpoints of the state slots, in the same pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from draftproof.engine.models.base import PrefillStates
from draftproof.engine.states.base import StateCache


def begin(states: StateCache, sequences: PrefillStates, checkpoints: Mapping[int, int]) -> None:
    """Begin requests from nothing, or state slots from such checkpoints (0: none), which stay."""
    states.begin(sequences)
    served = {slot: checkpoint for slot, checkpoint in checkpoints.items() if checkpoint}
    if served:
        states.restore(_index(served, states), _index(served.values(), states))


def keep(states: StateCache, kept: Mapping[int, int]) -> None:
    """Copy to each such checkpoint the checkpoint of a state slot."""
    checkpoints, state_slots = _index(kept, states), _index(kept.values(), states)
    for pool in (states.checkpoint_conv, states.checkpoint_ssm):
        pool[:, checkpoints] = pool[:, state_slots]


def _index(slots: Iterable[int], states: StateCache) -> Tensor:
    return torch.tensor(list(slots), dtype=torch.int64, device=states.ssm.device)
