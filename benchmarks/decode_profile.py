"""Where the time of one decode step goes: kernels by total time, and the first of them in order with their gaps."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

import torch
from decode_loop import DecodeLoop
from rich.console import Console
from rich.table import Table

# Enough for the start of a step and two layers.
IN_ORDER = 28


def show_profile(loop: DecodeLoop, prompts: torch.Tensor, console: Console) -> None:
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
    console.print(_by_name(events))
    console.print(_in_order(events[:IN_ORDER]))


def _kernels(profile: Any, cuda: bool) -> list[Any]:
    events = list(profile.events())
    if cuda:
        events = [event for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
    return events


def _by_name(events: list[Any]) -> Table:
    times: dict[str, list[float]] = defaultdict(list)
    for event in events:
        times[event.name].append(event.time_range.elapsed_us())
    span = events[-1].time_range.end - events[0].time_range.start
    busy = sum(map(sum, times.values()))
    table = Table(title=f"{len(events)} kernels, {busy:.0f} us in kernels, {span:.0f} us from first to last")
    for name in ("kernel", "count", "total", "median"):
        table.add_column(name, justify="left" if name == "kernel" else "right", overflow="fold")
    for name, values in sorted(times.items(), key=lambda item: -sum(item[1])):
        table.add_row(name[:90], str(len(values)), f"{sum(values):.1f}", f"{statistics.median(values):.2f}")
    return table


def _in_order(events: list[Any]) -> Table:
    table = Table(title="the first kernels in order")
    for name in ("kernel", "gap before", "time"):
        table.add_column(name, justify="left" if name == "kernel" else "right")
    end = events[0].time_range.start
    for event in events:
        gap, end = event.time_range.start - end, event.time_range.end
        table.add_row(event.name[:70], f"{gap:.2f}", f"{event.time_range.elapsed_us():.2f}")
    return table
