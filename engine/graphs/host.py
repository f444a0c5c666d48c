"""Graphs on the CPU, with the semantics of CUDA graphs and none of their forgiveness.

A CUDA graph reads freed or reused memory without a word. A host graph keeps the same rules and makes a breach
visible: memory that a graph owns holds POISON whenever CUDA would not promise its contents.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from draftproof.engine.graphs.backend import (
    CaptureError,
    GraphFunction,
    check_outputs,
    exclusive_capture,
    refuse_inside_capture,
)
from draftproof.engine.graphs.record import POISON_BYTE, FunctionGuard, Recorder, Step, storage_key

_ALIGNMENT = 64  # bytes; a multiple of every element size


class HostGraph:
    """Steps on fixed tensors. Its memory is one block: scratch first, then the storages of its outputs.

    Poison fills scratch except during a replay, and the outputs until the first replay, at the start of each replay,
    and whenever another graph of the pool replays.
    """

    def __init__(self, pool: "HostBackend", recorder: Recorder, outputs: tuple[Tensor, ...]) -> None:
        self.replays = 0
        self._pool = pool
        self._steps: list[Step] = recorder.steps
        self._scratch, self._kept = _move_to_one_block(recorder, outputs)
        self.outputs: tuple[Tensor, ...] = tuple(output.detach() for output in outputs)

    def replay(self) -> None:
        """Run the steps. An error in a step propagates; the graph can be replayed again."""
        refuse_inside_capture("replay")
        with torch.inference_mode():
            self._pool.make_live(self)
            try:
                for step in self._steps:
                    step()
            finally:
                self._scratch.fill_(POISON_BYTE)
        self.replays += 1

    def poison_outputs(self) -> None:
        """Overwrite the outputs, as another replay in the same pool may."""
        self._kept.fill_(POISON_BYTE)


class HostBackend:
    """One pool of host graphs."""

    name = "host"

    def __init__(self) -> None:
        self._live: HostGraph | None = None

    def capture(self, function: GraphFunction, declared: Sequence[Tensor]) -> HostGraph:
        """Record `function` and roll back what running it changed. Raises CaptureError."""
        recorder = Recorder(declared)
        with exclusive_capture(recorder.fail), torch.no_grad():
            try:
                outputs = tuple(recorder.fixed(output, "return") for output in _run(recorder, function))
            finally:
                recorder.roll_back()
            return HostGraph(self, recorder, outputs)

    def make_live(self, graph: HostGraph) -> None:
        """Poison the only outputs of the pool that hold values, because `graph` is about to write its own."""
        if self._live is not None:
            self._live.poison_outputs()
        self._live = graph


def _run(recorder: Recorder, function: GraphFunction) -> tuple[Tensor, ...]:
    try:
        with FunctionGuard(recorder), recorder:
            outputs = function()
    except Exception as error:
        if recorder.error is None:
            raise CaptureError("function", type(error).__name__, str(error)) from error
        raise recorder.error from error
    if recorder.error is not None:
        raise recorder.error
    return check_outputs(outputs)


def _move_to_one_block(recorder: Recorder, outputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Give the capture's allocations one poisoned block; return its bytes as scratch and outputs.

    One block is poisoned by one fill. The storages left behind are poisoned too, in case of an alias that the recorder
    never saw.
    """
    kept = {storage_key(output) for output in outputs}
    offsets, end, split = {}, 0, 0
    for key in sorted(recorder.private, key=lambda key: key in kept):
        offsets[key] = end
        end += -(-recorder.private[key].nbytes() // _ALIGNMENT) * _ALIGNMENT
        split = split if key in kept else end
    block = torch.full((end,), POISON_BYTE, dtype=torch.uint8)
    storage = block.untyped_storage()
    for key, tensor in recorder.private_tensors:
        start = offsets[key] // tensor.element_size() + tensor.storage_offset()
        tensor.set_(storage, start, tensor.size(), tensor.stride())
    for abandoned in recorder.private.values():
        abandoned.fill_(POISON_BYTE)  # type: ignore[attr-defined]  # torch's stubs leave it out
    return block[:split], block[split:]
