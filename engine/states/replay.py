"""Commit by replay: verify keeps its inputs, commit counts the valid ones, the next verify folds those in first.

A slot has two halves of inputs: a launch reads the pending ones from one half and writes its own to the other. `cursor`
[S, 2] is (m, h): m pending inputs in half h. `S` state slots, `B` rows of a launch, `W` verify width, `A` allocated
steps, `L` linear layers, `C` conv width, `Q` channels, `U` value heads, `H` key size, `E` value size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.base import PrefillStates, RecurrentWeights, StateShape, VerifyStates
from draftproof.engine.states.base import start
from draftproof.engine.states.checkpoints import LogicalStates, Pools, Shapes, StateCheckpoints
from draftproof.engine.states.snapshot import update


class Replay:
    """Base states, and inputs since: of conv [L, 2, S, C-1+A, Q] behind a window, of gates [L, 2, S, A, 2, U]."""

    def __init__(self, pools: Pools, turns: int = 1) -> None:
        self.ssm, self.inputs, self.gates = (pools[f"states.{name}"] for name in ("ssm", "inputs", "gates"))
        self.cursor = pools["states.cursor"]
        self.checkpoints = StateCheckpoints(pools, self.ssm.shape[1], turns)
        self._window = self.checkpoints.conv.shape[2]
        self._weights: dict[int, RecurrentWeights] = {}

    @staticmethod
    def shapes(shape: StateShape, slots: int, rows: int, steps: int) -> Shapes:
        """Return the arena entries: `slots` state slots, `steps` the largest width ever; rows need nothing."""
        inputs = (shape.layers, 2, slots, shape.conv - 1 + steps, shape.channels)
        return {
            "states.ssm": ((shape.layers, slots, *shape.matrices), shape.state_dtype),
            "states.inputs": (inputs, shape.dtype),
            "states.gates": ((shape.layers, 2, slots, steps, 2, shape.value_heads), shape.dtype),
            "states.cursor": ((slots, 2), torch.int64),
        }

    def begin(self, new_slots: Tensor) -> None:
        """Set nothing pending; a prefill uses the window of half 0."""
        self.checkpoints.begin(new_slots)
        self.cursor[new_slots] = 0

    def prefill(
        self, layer: int, weights: RecurrentWeights, x: Tensor, a: Tensor, b: Tensor, states: PrefillStates
    ) -> Tensor:
        """See StateCache."""
        self._weights[layer] = weights
        conv, ssm = self.inputs[layer, 0][:, : self._window], self.ssm[layer]
        start(conv, states.new_slots, weights.start_conv)
        start(ssm, states.new_slots, weights.start_ssm)
        return update(conv, ssm, (self.checkpoints.conv[layer], self.checkpoints.ssm[layer]), weights, x, a, b, states)

    def verify(
        self, layer: int, weights: RecurrentWeights, x: Tensor, a: Tensor, b: Tensor, states: VerifyStates
    ) -> Tensor:
        """See StateCache."""
        # Who is transferred requests runs no prefill.
        self._weights[layer] = weights
        size, width, ssm = states.state_slots.shape[0], states.width, self.ssm[layer]
        x, a, b = (part.view(size, width, -1) for part in (x, a, b))
        out = x.new_empty((size, width, ssm.shape[1], ssm.shape[3]))
        pools = (ssm, self.inputs[layer], self.gates[layer])
        if states.parents is None:
            kernels.gdn_replay(out, *pools, x, a, b, *weights.parameters, self.cursor, states.state_slots)
        else:
            launch = (*weights.parameters, self.cursor, states.state_slots, states.parents)
            kernels.gdn_replay_tree(out, *pools, x, a, b, *launch)
        return out.view(size * width, ssm.shape[1], ssm.shape[3])

    def keep_path(self, state_slots: Tensor, accept_index: Tensor) -> Tensor:
        """Move the inputs of the rows before all others, as only what comes first can be pending."""
        kernels.replay_move(self.inputs, self.gates, self.cursor, state_slots, accept_index)
        places = torch.arange(accept_index.shape[1], device=accept_index.device)
        return torch.where(accept_index >= 0, places, -1)

    def commit(self, state_slots: Tensor, last_correct_step_indices: Tensor) -> None:
        """See StateCache."""
        kernels.replay_commit(self.cursor, state_slots, last_correct_step_indices)

    def checkpoint(self, state_slots: Tensor, steps: Tensor) -> None:
        """See StateCache."""
        places = self.checkpoints.advance(state_slots, steps)
        self._fold((self.checkpoints.conv, self.checkpoints.ssm), state_slots, places, steps)

    def install(self, state_slots: Tensor, states: LogicalStates, checkpoints: LogicalStates | None) -> None:
        """See StateCache; it sets the window of half 0."""
        self.inputs[:, 0, state_slots, : self._window], self.ssm[:, state_slots] = states
        if checkpoints:
            self.checkpoints.put(state_slots, checkpoints)
        self.cursor[state_slots] = 0

    def flush(self, state_slots: Tensor) -> None:
        """See StateCache."""
        for layer, weights in self._weights.items():
            pools = (self.ssm[layer], self.inputs[layer], self.cursor, self.gates[layer])
            kernels.gdn_flush(*pools, *weights.parameters, state_slots)
        kernels.replay_rewind(self.cursor, state_slots)

    def logical_states(self, state_slots: Tensor) -> LogicalStates:
        """See StateCache."""
        pending, half = self.cursor[state_slots].unbind(1)
        conv = self.inputs[:, half, state_slots, : self._window].clone()
        ssm = self.ssm[:, state_slots].clone()
        rows = torch.arange(len(state_slots), device=state_slots.device)
        self._fold((conv, ssm), state_slots, rows, pending - 1)
        return conv, ssm

    def base(self, state_slots: Tensor) -> LogicalStates:
        """Return copies of the states before what is pending, as in `plain`."""
        half = self.cursor[state_slots, 1]
        return self.inputs[:, half, state_slots, : self._window], self.ssm[:, state_slots]

    def _fold(self, into: LogicalStates, state_slots: Tensor, rows: Tensor, steps: Tensor) -> None:
        """Write the states after pending input `steps` of slots (-1: none) to `rows` of other pools."""
        for layer, weights in self._weights.items():
            pools = (into[1][layer], into[0][layer], self.ssm[layer], self.inputs[layer], self.gates[layer])
            kernels.gdn_checkpoint(*pools, *weights.parameters, self.cursor, state_slots, rows, steps)
