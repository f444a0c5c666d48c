"""What the benchmarks share: options, times, tables, and the result in JSON."""

from __future__ import annotations

import argparse
import errno
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from draftproof.engine.graphs.cuda import no_collection
from draftproof.properties.values.files import require_writable
from draftproof.properties.values.measurement import Measurement, append

Mark = torch.cuda.Event | float


def at_least(least: int) -> Callable[[str], int]:
    """Return what reads a number of an option."""

    def number(text: str) -> int:
        if not text.lstrip("-").isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"invalid {text!r}: expected a whole number of at least {least}")
        return int(text)

    return number


def writable(text: str) -> Path:
    """Return the path of a file that can be written: before anything is measured, and not after."""
    try:
        if Path(text).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        require_writable(Path(text))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"invalid {text!r}: it cannot be written: {error.strerror}") from None
    return Path(text)


OPTIONS: dict[str, dict[str, Any]] = {
    "tiny": {"action": "store_true", "help": "tiny sizes, to try the script itself"},
    "batch": {"type": at_least(1), "action": "append", "help": "batch size, may be given several times"},
    "tokens": {"type": at_least(1), "action": "append", "help": "tokens of each row, may be given several times"},
    "repeats": {"type": at_least(1), "help": "runs that a median is over"},
    "seed": {"type": at_least(0), "default": 1, "help": "seed of everything random"},
    "json": {"type": writable, "help": "write everything measured to this file"},
    "history": {"type": writable, "help": "add the seconds measured to this file, for draftproof lab bench compare"},
    "label": {"help": "what that file calls this run (default: the commit)"},
}
"""Options that several benchmarks have."""
VERSIONS = ("draftproof", "torch", "triton", "numpy")
KEPT = ("history", "label")
"""Options of benchmarks that `keep` what they measured."""


class _Parser(argparse.ArgumentParser):
    """A parser that ends with 2 where what is to run needs a device that is not here, or would take hours."""

    def parse_args(self, *given: Any, **named: Any) -> Any:
        arguments = super().parse_args(*given, **named)
        on_gpu = arguments.device == "cuda" if "device" in arguments else not vars(arguments).get("tiny", True)
        if on_gpu and not torch.cuda.is_available():
            ways = {"tiny": "--tiny", "device": "--device cpu"}
            cpu = " ".join(way for name, way in ways.items() if name in arguments)
            self.error(f"torch sees no CUDA device here: expected one, or {cpu}, which runs on a CPU")
        if not on_gpu and not vars(arguments).get("tiny", True):
            self.error("invalid --device cpu without --tiny: expected both, as sizes of a GPU take hours on a CPU")
        return arguments


def parser(about: str | None, *options: str) -> argparse.ArgumentParser:
    """Return a parser with these of the shared options, and `--json`."""
    made = _Parser(description=about)
    for name in (*options, "json"):
        made.add_argument(f"--{name}", **OPTIONS[name])
    return made


def write(path: Path | None, result: Any) -> None:
    """Write a result as JSON if a file was named."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def keep(arguments: argparse.Namespace, result: dict[str, Any], seconds: Mapping[str, float]) -> None:
    """Write a result where the options say; in a history file are the `seconds` of each measure."""
    write(arguments.json, result)
    if arguments.history is not None:
        append(arguments.history, _measurement(arguments, result, seconds))


def milliseconds(rows: Iterable[Mapping[str, Any]], by: str) -> dict[str, float]:
    """Return the seconds of all that rows have in milliseconds, named by a column that tells them apart."""
    ending = "_ms"
    return {
        f"{name.removesuffix(ending)}, {by} {row[by]}": 1e-3 * value
        for row in rows
        for name, value in row.items()
        if name.endswith(ending)
    }


def _measurement(arguments: argparse.Namespace, result: dict[str, Any], seconds: Mapping[str, float]) -> Measurement:
    chosen = {name: value for name, value in vars(arguments).items() if name not in ("json", *KEPT) and value}
    return Measurement(
        benchmark=Path(sys.argv[0]).stem,
        label=arguments.label or _commit(),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        device=result.get("device", "cpu"),
        machine=f"{platform.node()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        versions={"python": platform.python_version(), **{name: _version(name) for name in VERSIONS}},
        options=tuple(f"{name} {value}" for name, value in sorted(chosen.items())),
        seconds=dict(seconds),
    )


def _commit() -> str:
    """Return the commit of this checkout, "+" after it if anything is changed; without git our own version."""
    found = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=12", "--dirty=+"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or f"draftproof {_version('draftproof')}"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def machine(device: str) -> dict[str, str]:
    """Return what every result names: the device and the version of torch."""
    return {"device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "torch": torch.__version__}


def show(
    title: str,
    rows: Iterable[Any],
    columns: Mapping[str, Callable[[Any], object]],
    *,
    left: Sequence[str] = (),
    section: Callable[[Any], object] = lambda _: None,
) -> None:
    """Print a table: a function of a row for each column; a line between rows of different `section`."""
    table, before = Table(title=title), None
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", overflow="fold")
    for row in rows:
        if before is not None and section(row) != before:
            table.add_section()
        before = section(row)
        table.add_row(*(str(cell(row)) for cell in columns.values()))
    Console(width=120).print(table)


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
