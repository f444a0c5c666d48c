"""States as a trace has them: of each linear layer the convolution's window, then the matrices of all value heads.

`L` linear layers, `R` requests, `C` conv width, `Q` channels, `U` value heads, `H` key size, `E` value size. All return
a list of the linear layers, each with a vector for each request.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from draftproof.engine.stages import Commit, KeptState
from draftproof.engine.states.base import StateCache
from draftproof.engine.states.replay import Replay
from draftproof.engine.states.snapshot import Snapshot
from draftproof.engine.subject.observations import vectors
from draftproof.properties.values.observed import Vector

Layers = list[list[Vector]]


def logical(states: StateCache, commits: Sequence[Commit]) -> Layers:
    """Return what has been committed, pending inputs folded in."""
    return _layers(*states.logical_states(_slots(states, commits)))


def stored(states: StateCache, commits: Sequence[Commit]) -> Layers:
    """Return the pools as they are: the states, once nothing is pending."""
    slots = _slots(states, commits)
    return _layers(*(states.base(slots) if isinstance(states, Replay) else states.logical_states(slots)))


def base(states: Replay, commits: Sequence[Commit]) -> Layers:
    """Return the states before what is pending."""
    return _layers(*states.base(_slots(states, commits)))


def pending_inputs(states: Replay, commits: Sequence[Commit]) -> list[int]:
    """Return how many inputs of each request are still to be folded in."""
    return states.cursor[_slots(states, commits), 0].tolist()


def checkpoints(states: StateCache, commits: Sequence[Commit]) -> Layers:
    """Return the checkpoints of these requests."""
    return _layers(*states.checkpoints.of(_slots(states, commits)))


def copies(states: StateCache, kept: Sequence[KeptState]) -> Layers:
    """Return the states that were kept for others."""
    places = torch.tensor([one.checkpoint for one in kept], dtype=torch.int64, device=states.ssm.device)
    return _layers(*states.checkpoints.at(places))


def after_rows(states: Snapshot, layer: int, row: int, count: int) -> list[Vector]:
    """Return the states after verify rows 0 .. count-1 of one row of the batch."""
    conv, ssm = states.intermediate_conv[layer, row, :count], states.intermediate_ssm[layer, row, :count]
    return vectors(_flat(conv, ssm))


def _slots(states: StateCache, commits: Sequence[Commit]) -> Tensor:
    return torch.tensor([commit.state_slot for commit in commits], dtype=torch.int64, device=states.ssm.device)


def _layers(conv: Tensor, ssm: Tensor) -> Layers:
    """conv [L, R, C-1, Q] and ssm [L, R, U, H, E]."""
    return [vectors(_flat(conv[layer], ssm[layer])) for layer in range(conv.shape[0])]


def _flat(conv: Tensor, ssm: Tensor) -> Tensor:
    """Of one layer, in the wider dtype of the two."""
    dtype = torch.promote_types(conv.dtype, ssm.dtype)
    return torch.cat([conv.flatten(1).to(dtype), ssm.flatten(1).to(dtype)], dim=1)
