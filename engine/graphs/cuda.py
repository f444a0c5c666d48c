"""Graphs on a CUDA device."""

import contextlib
import gc
from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from draftproof.engine.graphs.backend import (
    CaptureError,
    GraphFunction,
    check_outputs,
    exclusive_capture,
    refuse_inside_capture,
)
from draftproof.kernels.registry import CALLS


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage meanwhile: freeing an earlier graph or its memory would invalidate a capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class CudaGraph:
    """A `torch.cuda.CUDAGraph` with its outputs, which it keeps allocated, and the kernels that it launches."""

    def __init__(self, graph: torch.cuda.CUDAGraph, outputs: tuple[Tensor, ...], calls: Counter[str]) -> None:
        self.replays = 0
        self.outputs = outputs
        self._graph, self._calls = graph, calls

    def replay(self) -> None:
        """Launch the graph on the current stream."""
        refuse_inside_capture("replay")
        self._graph.replay()
        CALLS.update(self._calls)
        self.replays += 1


class CudaBackend:
    """One memory pool of CUDA graphs, captured on a side stream."""

    name = "cuda"

    def __init__(self, device: torch.device | str = "cuda") -> None:
        self._device = torch.device(device)
        with torch.cuda.device(self._device):
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream()

    def capture(self, function: GraphFunction, declared: Sequence[Tensor]) -> CudaGraph:
        """Capture `function`. `declared` is not checked: CUDA knows no undeclared memory. Raises CaptureError."""
        failures: list[CaptureError] = []

        def fail(rule: str, op: str, reason: str) -> None:
            failures.append(CaptureError(rule, op, reason))
            raise failures[-1]

        with exclusive_capture(fail), torch.no_grad(), torch.cuda.device(self._device):
            torch.cuda.synchronize()
            before = Counter(CALLS)
            with no_collection():
                graph, outputs = self._capture(function, failures)
            torch.cuda.synchronize()
        return CudaGraph(graph, outputs, CALLS - before)

    def _capture(
        self, function: GraphFunction, failures: list[CaptureError]
    ) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...]]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                outputs = check_outputs(function())
                if failures:
                    raise failures[0]
            except BaseException as error:
                self._abandon(graph)
                if not isinstance(error, Exception):
                    raise
                if failures:
                    raise failures[0] from error
                if isinstance(error, CaptureError):
                    raise
                raise CaptureError("function", type(error).__name__, str(error)) from error
            try:
                graph.capture_end()
            except RuntimeError as error:
                self._abandon(graph)
                raise CaptureError("function", "capture_end", str(error)) from error
        return graph, outputs

    def _abandon(self, graph: torch.cuda.CUDAGraph) -> None:
        """End a failed capture, so that stream, allocator and random generator are usable again.

        The pool is replaced by a new one, because the failed graph gives it up. Where capture_end raises, it may have
        reached neither the allocator, which then still counts the pool as recording, nor the generator, which still
        believes in the capture.
        """
        abandoned, self._pool = self._pool, torch.cuda.graph_pool_handle()
        try:
            graph.capture_end()
        except RuntimeError:
            index = torch.cuda.current_device()
            generator = torch.cuda.default_generators[index]
            with contextlib.suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(index, abandoned)
            generator.graphsafe_set_state(generator.clone_state())
