"""Commit by snapshot: verify writes the state after every row beside the committed one, commit copies the right one.

`S` state slots, `B` rows of a launch, `W` verify width, `A` allocated steps, `L` linear layers, `C` conv width, `Q`
channels, `U` value heads, `H` key size, `E` value size. Source: SGLang's `update_mamba_state_after_mtp_verify`.
"""

from __future__ import annotations

import torch

from draftproof import kernels
from draftproof.engine.models.base import Chunks, RecurrentWeights, StateShape, VerifyRows
from draftproof.engine.states.base import Plain, Pools, Shapes, kept_shapes, start


class Snapshot:
    """Committed pools "states.*", and in "steps.*" the state after each row of the batch that was verified last."""

    def __init__(self, pools: Pools) -> None:
        self.conv, self.ssm = pools["states.conv"], pools["states.ssm"]
        self.steps_conv, self.steps_ssm = pools["steps.conv"], pools["steps.ssm"]
        self.kept_conv, self.kept_ssm = pools["kept.conv"], pools["kept.ssm"]

    @staticmethod
    def shapes(shape: StateShape, slots: int, rows: int, steps: int) -> Shapes:
        """The arena entries: `slots` state slots, `rows` rows of the largest launch, `steps` the largest width ever."""
        window, matrix = (shape.conv - 1, shape.channels), (shape.value_heads, shape.key_dim, shape.value_dim)
        return {
            "states.conv": ((shape.layers, slots, *window), shape.dtype),
            "states.ssm": ((shape.layers, slots, *matrix), shape.state_dtype),
            "steps.conv": ((shape.layers, rows, steps, *window), shape.dtype),
            "steps.ssm": ((shape.layers, rows, steps, *matrix), shape.state_dtype),
            **kept_shapes(shape, slots),
        }

    def begin(self, chunks: Chunks) -> None:
        """Nothing but the layers' states belongs to a request."""

    def prefill(
        self, layer: int, weights: RecurrentWeights, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, chunks: Chunks
    ) -> torch.Tensor:
        """See StateCache."""
        conv, ssm = self.conv[layer], self.ssm[layer]
        start(conv, chunks.fresh, weights.start_conv)
        start(ssm, chunks.fresh, weights.start_ssm)
        return update(conv, ssm, (self.kept_conv[layer], self.kept_ssm[layer]), weights, x, a, b, chunks)

    def verify(
        self, layer: int, weights: RecurrentWeights, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, rows: VerifyRows
    ) -> torch.Tensor:
        """See StateCache."""
        size, width = rows.slots.shape[0], rows.width
        x, a, b = (part.view(size, width, -1) for part in (x, a, b))
        qkv = torch.empty_like(x)
        kernels.conv_verify(qkv, self.steps_conv[layer], x, self.conv[layer], weights.conv, rows.slots)
        ssm = self.ssm[layer]
        out = x.new_empty((size, width, ssm.shape[1], ssm.shape[3]))
        kernels.gdn_verify(out, self.steps_ssm[layer], qkv, a, b, weights.a_log, weights.dt_bias, ssm, rows.slots)
        return out.view(size * width, ssm.shape[1], ssm.shape[3])

    def commit(self, slots: torch.Tensor, last_correct_step_indices: torch.Tensor) -> None:
        """See StateCache."""
        kernels.state_scatter(self.conv, self.steps_conv, slots, last_correct_step_indices)
        kernels.state_scatter(self.ssm, self.steps_ssm, slots, last_correct_step_indices)

    def checkpoint(self, slots: torch.Tensor, steps: torch.Tensor) -> None:
        """See StateCache."""
        kernels.state_scatter(self.kept_conv, self.steps_conv, slots, steps)
        kernels.state_scatter(self.kept_ssm, self.steps_ssm, slots, steps)

    def flush(self, slots: torch.Tensor) -> None:
        """The committed states are plain at any time."""

    def plain(self, slots: torch.Tensor) -> Plain:
        """See StateCache."""
        return self.conv[:, slots], self.ssm[:, slots]


def update(
    conv: torch.Tensor,
    ssm: torch.Tensor,
    kept: tuple[torch.Tensor, torch.Tensor],
    weights: RecurrentWeights,
    x: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    chunks: Chunks,
) -> torch.Tensor:
    """Advance the states of one layer in place over packed sequences x [T, Q]: [T, U, E]."""
    qkv = torch.empty_like(x)
    where = (chunks.slots, chunks.starts, chunks.keep_slots, chunks.keep_steps)
    kernels.conv_update(qkv, conv, kept[0], x, weights.conv, *where)
    out = x.new_empty((x.shape[0], ssm.shape[1], ssm.shape[3]))
    kernels.gdn_update(out, ssm, kept[1], qkv, a, b, weights.a_log, weights.dt_bias, *where)
    return out
