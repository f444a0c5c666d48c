"""Times of runs, on a CUDA device or on the host's clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from draftproof.engine.graphs.cuda import no_collection

Mark = torch.cuda.Event | float


def median(
    device: str, run: Callable[[], object], *, repeats: int, warm: int = 2, before: Callable[[], object] | None = None
) -> float:
    """Return the median seconds of `run`, after `warm` runs that do not count; `before` each run is not timed."""
    times = []
    for _ in range(warm + repeats):
        if before:
            before()
        times.append(_seconds(device, run))
    return statistics.median(times[warm:])


def _seconds(device: str, run: Callable[[], object]) -> float:
    synchronize(device)
    begin = mark(device)
    run()
    end = mark(device)
    synchronize(device)
    return seconds(begin, end)


def synchronize(device: str) -> None:
    """Wait for the device, if there is one."""
    if device == "cuda":
        torch.cuda.synchronize()


def mark(device: str) -> Mark:
    """Return now: an event of the device, or the host's clock."""
    if device != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds(begin: Any, end: Any) -> float:
    """Return the seconds between two marks of one device, both of which it has passed."""
    return 1e-3 * begin.elapsed_time(end) if isinstance(begin, torch.cuda.Event) else end - begin


def kernels(profile: Any) -> list[Any]:
    """Return what ran on the CUDA device in a profile: kernels, and copies."""
    return [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]


def device_seconds(run: Callable[[], object]) -> float:
    """Return for how long the CUDA device was busy with `run`: the sum of all kernels and copies.

    Raises RuntimeError if the profiler saw none.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    events = kernels(profile)
    if not events:
        raise RuntimeError("the profiler saw no kernel")
    return 1e-6 * sum(event.time_range.elapsed_us() for event in events)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits of a tensor as integers, of which any two NaN of the same bits are equal."""
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize])


def captured(run: Callable[[], object], warm: Callable[[], object]) -> Callable[[], None]:
    """Return the replay of a CUDA graph of `run`; `warm` goes before: kernels are compiled at their first launch.

    The replay keeps `run`, and with it the tensors that the graph reads.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        warm()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with no_collection(), torch.cuda.graph(graph, stream=stream):
        run()
    return partial(_replay, graph, run)


def _replay(graph: torch.cuda.CUDAGraph, _run: Callable[[], object]) -> None:
    graph.replay()


def launch_seconds(device: str, launches: Sequence[Callable[[], object]], *, least: int = 20) -> float:
    """Return the median seconds of one launch, where all of them run in turn, at least `least` in a CUDA graph."""
    if device != "cuda":
        return median(device, lambda: [launch() for launch in launches], repeats=9) / len(launches)
    rounds = -(-least // len(launches))
    # Results are kept so that each launch writes memory of its own, not what the one before it freed.
    results: list[object] = []
    replay = captured(
        lambda: results.extend(launch() for _ in range(rounds) for launch in launches),
        warm=lambda: [launch() for launch in launches[:2]],
    )
    return median(device, replay, repeats=9) / (rounds * len(launches))


def copy_bandwidth(device: str, nbytes: int) -> float:
    """Return the bytes per second of a large copy, read plus written."""
    source = torch.zeros(nbytes, dtype=torch.uint8, device=device)
    copy = torch.empty_like(source)
    return 2 * nbytes / median(device, lambda: copy.copy_(source), repeats=9)
