"""Where the time of one decode step goes: kernels by total time, and the first of them in order with their gaps."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

import bench
import torch
from decode_model import DecodeLoop

# Enough for the start of a step and two layers.
IN_ORDER = 28


def show_profile(loop: DecodeLoop, prompts: torch.Tensor) -> None:
    """Print two tables for one step after a prefill; times are microseconds."""
    loop.prefill(prompts)
    for _ in range(3):
        loop.step()
    cuda = torch.cuda.is_available()
    kind = torch.profiler.ProfilerActivity.CUDA if cuda else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[kind]) as profile:
        loop.step()
        if cuda:
            torch.cuda.synchronize()
    events = sorted(_kernels(profile, cuda), key=lambda event: event.time_range.start)
    if not events:
        raise RuntimeError("the profiler saw no kernel")
    _show_by_name(events)
    _show_in_order(events[:IN_ORDER])


def _kernels(profile: Any, cuda: bool) -> list[Any]:
    events = list(profile.events())
    if cuda:
        events = [event for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
    return events


def _show_by_name(events: list[Any]) -> None:
    times: dict[str, list[float]] = defaultdict(list)
    for event in events:
        times[event.name].append(event.time_range.elapsed_us())
    span = events[-1].time_range.end - events[0].time_range.start
    busy = sum(map(sum, times.values()))
    bench.show(
        f"{len(events)} kernels, {busy:.0f} us in kernels, {span:.0f} us from first to last",
        sorted(times.items(), key=lambda item: -sum(item[1])),
        {
            "kernel": lambda item: item[0][:90],
            "count": lambda item: len(item[1]),
            "total": lambda item: f"{sum(item[1]):.1f}",
            "median": lambda item: f"{statistics.median(item[1]):.2f}",
        },
        left=("kernel",),
    )


def _show_in_order(events: list[Any]) -> None:
    ends = [events[0].time_range.start, *(event.time_range.end for event in events)]
    bench.show(
        "the first kernels in order",
        zip(events, ends, strict=False),
        {
            "kernel": lambda pair: pair[0].name[:70],
            "gap before": lambda pair: f"{pair[0].time_range.start - pair[1]:.2f}",
            "time": lambda pair: f"{pair[0].time_range.elapsed_us():.2f}",
        },
        left=("kernel",),
    )
