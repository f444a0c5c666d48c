"""Commit by snapshot: verify writes the state after every row beside the committed one, commit copies the right one.

`S` state slots, `B` rows of a launch, `W` verify width, `A` allocated steps, `L` linear layers, `C` conv width, `Q`
channels, `U` value heads, `H` key size, `E` value size. Source: SGLang's `update_mamba_state_after_mtp_verify`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.base import PrefillStates, RecurrentWeights, StateShape, VerifyStates
from draftproof.engine.states.base import start
from draftproof.engine.states.checkpoints import LogicalStates, Pools, Shapes, StateCheckpoints


class Snapshot:
    """Committed pools "states.*", and in "steps.*" the state after each row of the batch that was verified last."""

    def __init__(self, pools: Pools, turns: int = 1) -> None:
        self.conv, self.ssm = pools["states.conv"], pools["states.ssm"]
        self.intermediate_conv, self.intermediate_ssm = pools["intermediate.conv"], pools["intermediate.ssm"]
        self.checkpoints = StateCheckpoints(pools, self.ssm.shape[1], turns)

    @staticmethod
    def shapes(shape: StateShape, slots: int, rows: int, steps: int) -> Shapes:
        """Return the arena entries: `slots` state slots, `rows` of a launch at most, `steps` the largest width."""
        return {
            "states.conv": ((shape.layers, slots, *shape.window), shape.dtype),
            "states.ssm": ((shape.layers, slots, *shape.matrices), shape.state_dtype),
            "intermediate.conv": ((shape.layers, rows, steps, *shape.window), shape.dtype),
            "intermediate.ssm": ((shape.layers, rows, steps, *shape.matrices), shape.state_dtype),
        }

    def begin(self, new_slots: Tensor) -> None:
        """Begin with no checkpoint; the layers begin their states themselves."""
        self.checkpoints.begin(new_slots)

    def prefill(
        self, layer: int, weights: RecurrentWeights, x: Tensor, a: Tensor, b: Tensor, states: PrefillStates
    ) -> Tensor:
        """See StateCache."""
        conv, ssm = self.conv[layer], self.ssm[layer]
        start(conv, states.new_slots, weights.start_conv)
        start(ssm, states.new_slots, weights.start_ssm)
        return update(conv, ssm, (self.checkpoints.conv[layer], self.checkpoints.ssm[layer]), weights, x, a, b, states)

    def verify(
        self, layer: int, weights: RecurrentWeights, x: Tensor, a: Tensor, b: Tensor, states: VerifyStates
    ) -> Tensor:
        """See StateCache."""
        slots, width, ssm = states.state_slots, states.width, self.ssm[layer]
        x, a, b = (part.view(len(slots), width, -1) for part in (x, a, b))
        qkv, out = torch.empty_like(x), x.new_empty((len(slots), width, ssm.shape[1], ssm.shape[3]))
        conv = (qkv, self.intermediate_conv[layer], x, self.conv[layer], weights.conv, slots)
        gdn = (out, self.intermediate_ssm[layer], qkv, a, b, weights.a_log, weights.dt_bias, ssm, slots)
        if states.parents is None:
            kernels.conv_verify(*conv)
            kernels.gdn_verify(*gdn)
        else:
            kernels.conv_verify_tree(*conv, states.parents)
            kernels.gdn_verify_tree(*gdn, states.parents)
        return out.flatten(0, 1)

    def keep_path(self, state_slots: Tensor, accept_index: Tensor) -> Tensor:
        """Return the rows themselves: the state after each of them has a place of its own."""
        return accept_index

    def commit(self, state_slots: Tensor, last_correct_step_indices: Tensor) -> None:
        """See StateCache."""
        kernels.state_scatter(self.conv, self.intermediate_conv, state_slots, last_correct_step_indices)
        kernels.state_scatter(self.ssm, self.intermediate_ssm, state_slots, last_correct_step_indices)

    def checkpoint(self, state_slots: Tensor, steps: Tensor) -> None:
        """See StateCache."""
        places = self.checkpoints.advance(state_slots, steps)
        kernels.state_scatter(self.checkpoints.conv, self.intermediate_conv, places, steps)
        kernels.state_scatter(self.checkpoints.ssm, self.intermediate_ssm, places, steps)

    def install(self, state_slots: Tensor, states: LogicalStates, checkpoints: LogicalStates | None) -> None:
        """See StateCache."""
        self.conv[:, state_slots], self.ssm[:, state_slots] = states
        if checkpoints:
            self.checkpoints.put(state_slots, checkpoints)

    def flush(self, state_slots: Tensor) -> None:
        """Do nothing: the committed states are plain at any time."""

    def logical_states(self, state_slots: Tensor) -> LogicalStates:
        """See StateCache."""
        return self.conv[:, state_slots], self.ssm[:, state_slots]


def update(
    conv: Tensor,
    ssm: Tensor,
    checkpoints: tuple[Tensor, Tensor],
    weights: RecurrentWeights,
    x: Tensor,
    a: Tensor,
    b: Tensor,
    states: PrefillStates,
) -> Tensor:
    """Advance the states of one layer in place over packed sequences x [T, Q]: [T, U, E]."""
    qkv = torch.empty_like(x)
    sequences = (states.state_slots, states.cu_seqlens, states.checkpoint_slots, states.checkpoint_steps)
    kernels.conv_update(qkv, conv, checkpoints[0], x, weights.conv, *sequences)
    out = x.new_empty((x.shape[0], ssm.shape[1], ssm.shape[3]))
    kernels.gdn_update(out, ssm, checkpoints[1], qkv, a, b, weights.a_log, weights.dt_bias, *sequences)
    return out
