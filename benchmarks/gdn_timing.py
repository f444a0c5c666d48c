"""Times of launches: replays of a CUDA graph on a GPU, plain calls on a CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch
from gdn_buffers import Setup

LAUNCHES = 20
REPEATS = 9
WARM = 2


def seconds(given: Setup, launches: Sequence[Callable[[], object]]) -> float:
    """Median seconds of one launch, where all of them run in turn, at least `LAUNCHES` in a graph."""
    rounds = -(-LAUNCHES // len(launches))
    if given.device != "cuda":
        return _median(_wall, lambda: [launch() for launch in launches]) / len(launches)
    _warm(launches)
    graph = torch.cuda.CUDAGraph()
    kept = []
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            # Results are kept so that each launch writes memory of its own, not what the one before it freed.
            kept.extend([launch() for launch in launches])
    return _median(_events, graph.replay) / (rounds * len(launches))


def bandwidth(given: Setup) -> float:
    """Bytes per second of a large copy, read plus written."""
    source = torch.zeros(given.copy_bytes, dtype=torch.uint8, device=given.device)
    target = torch.empty_like(source)
    time_of = _events if given.device == "cuda" else _wall
    return 2 * given.copy_bytes / _median(time_of, lambda: target.copy_(source))


def _warm(launches: Sequence[Callable[[], object]]) -> None:
    """Once outside of the graph: kernels are compiled at their first launch."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for launch in launches[:2]:
            launch()
    torch.cuda.synchronize()


def _median(time_of: Callable[[Callable[[], object]], float], run: Callable[[], object]) -> float:
    return statistics.median([time_of(run) for _ in range(WARM + REPEATS)][WARM:])


def _wall(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _events(run: Callable[[], object]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return 1e-3 * begin.elapsed_time(end)
