"""Decoding speed with the draft off, against transformers and against the memory floor (`make bench-gpu`).

The floor of a step is the bytes of weights that it reads over the bandwidth of a large device-to-device copy, which
counts bytes read plus bytes written. "engine" is `Engine.step`, one step behind the other to the end of the texts,
with all that the host does; "graph" is the target's part of it alone, a graph that feeds its tokens to the next.
`--profile` shows where the time of one such graph goes; `--tiny` runs on a CPU.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import bench
import torch
from decode_model import DecodeLoop, Setup, engine_model, setup, transformers_model, weight_bytes
from rich.console import Console
from server import Server, sizes
from shapes import llama_shapes, random_tensors

# bf16 logits of sixteen layers differ by a few per cent; of another model, by more than their own size.
LOGITS_BOUND = 0.1
# Kernels that a profile shows in order: enough for the start of a step and two layers.
IN_ORDER = 28
COLUMNS: dict[str, Callable[[dict[str, Any]], object]] = {
    "batch": lambda row: row["batch"],
    "engine ms/step": lambda row: f"{row['engine_ms']:.3f}",
    "graph ms": lambda row: f"{row['graph_ms']:.3f}",
    "tokens/s": lambda row: f"{row['tokens_per_second']:.0f}",
    "transformers ms/step": lambda row: f"{row['transformers_ms']:.3f}",
    "times transformers": lambda row: f"{row['times_transformers']:.1f}",
    "of floor": lambda row: f"{100 * row['of_floor']:.1f} %",
    "graph of floor": lambda row: f"{100 * row['graph_of_floor']:.1f} %",
}


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = bench.parser(__doc__, "tiny", "batch", "seed", *bench.KEPT)
    parser.add_argument("--profile", action="store_true", help="show the kernels of one step and stop")
    arguments = parser.parse_args()
    if arguments.profile and (arguments.json or arguments.history):
        parser.error("--profile measures no steps: expected it without --json and --history")
    given = setup(arguments.tiny, arguments.seed, tuple(arguments.batch) if arguments.batch else None)
    console = Console()
    with torch.inference_mode():
        tensors = random_tensors(llama_shapes(given.sizes), given.device, given.dtype, given.seed)
        dense = engine_model(given, tensors)
        if arguments.profile:
            show_profile(DecodeLoop(dense, given, given.batches[0]), prompts(given, given.batches[0]))
            return
        result = measure(given, dense, tensors, console)
    title = f"{result['device']}: floor {result['floor_ms']:.3f} ms, copy {result['copy_bandwidth'] / 1e12:.2f} TB/s"
    bench.show(title, result["batches"], COLUMNS)
    seconds = {
        f"decode {part}, batch {row['batch']}": 1e-3 * row[f"{name}_ms"]
        for row in result["batches"]
        for part, name in (("step", "engine"), ("graph", "graph"))
    }
    bench.keep(arguments, result, seconds)


def measure(given: Setup, dense: Any, tensors: dict[str, torch.Tensor], console: Console) -> dict[str, Any]:
    """Everything measured, times in milliseconds, bandwidth in bytes per second."""
    bandwidth = bench.copy_bandwidth(given.device, given.copy_bytes)
    floor = 1e3 * weight_bytes(dense) / bandwidth
    other = transformers_model(given, tensors)
    rows = []
    for batch in given.batches:
        with console.status(f"batch {batch}"):
            rows.append(_measure_batch(given, dense, other, batch, floor))
    return {
        **bench.machine(given.device),
        "seed": given.seed,
        "prompt": given.prompt,
        "new": given.new,
        "repeats": given.repeats,
        "copy_bandwidth": bandwidth,
        "weight_bytes": weight_bytes(dense),
        "floor_ms": floor,
        "batches": rows,
    }


def _measure_batch(given: Setup, dense: Any, other: Any, batch: int, floor: float) -> dict[str, Any]:
    ids = prompts(given, batch)
    loop = DecodeLoop(dense, given, batch)
    loop.prefill(ids)
    difference = _relative(loop.logits, other(ids).logits[:, -1])
    if not difference < LOGITS_BOUND:
        raise RuntimeError(f"logits differ from transformers' by {difference:.3g} of their size; speed means nothing")

    def steps() -> None:
        for _ in range(given.new - 1):
            loop.step()

    graph = _milliseconds(given, steps, before=lambda: loop.prefill(ids)) / (given.new - 1)
    engine = _served(given, dense, ids)
    whole, first = (_generate(given, other, ids, new) for new in (given.new, 1))
    theirs = (whole - first) / (given.new - 1)
    return {
        "batch": batch,
        "engine_ms": engine,
        "graph_ms": graph,
        "transformers_ms": theirs,
        "tokens_per_second": 1e3 * batch / engine,
        "times_transformers": theirs / engine,
        "of_floor": floor / engine,
        "graph_of_floor": floor / graph,
        "logits_difference": difference,
    }


def _served(given: Setup, dense: Any, ids: torch.Tensor) -> float:
    """Return the milliseconds of an engine step in which every request gains a token, without drafts."""
    batch, texts = len(ids), [tuple(row) for row in ids.tolist()]
    server = Server(given, dense, sizes(given, batch, given.prompt, given.new))
    times = []
    for _ in range(given.repeats + 1):
        steps = server.rounds(texts, given.new, num_drafts=0)
        if any(step.plan.prefill or len(step.plan.decode) < batch for step in steps):
            raise RuntimeError("a step did something else than a round of every request; there is nothing to time")
        times.append(statistics.fmean(step.seconds for step in steps))
    return 1e3 * statistics.median(times[1:])


def _generate(given: Setup, model: Any, ids: torch.Tensor, new: int) -> float:
    """Milliseconds of one greedy `generate` of exactly `new` tokens a request."""
    mask = torch.ones_like(ids)

    def run() -> None:
        model.generate(ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False)

    return _milliseconds(given, run)


def prompts(given: Setup, batch: int) -> torch.Tensor:
    """Random prompts [B, n]."""
    generator = torch.Generator().manual_seed(given.seed)
    return torch.randint(0, given.sizes["vocab_size"], (batch, given.prompt), generator=generator).to(given.device)


def _milliseconds(given: Setup, run: Callable[[], object], before: Callable[[], object] | None = None) -> float:
    return 1e3 * bench.median(given.device, run, repeats=given.repeats, warm=1, before=before)


def _relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got.float() - expected.float()).norm() / expected.float().norm())


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
    ran = bench.kernels(profile) if cuda else profile.events()
    events = sorted(ran, key=lambda event: event.time_range.start)
    if not events:
        raise RuntimeError("the profiler saw no kernel")
    _show_by_name(events)
    _show_in_order(events[:IN_ORDER])


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


if __name__ == "__main__":
    main()
