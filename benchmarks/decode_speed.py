"""Decoding speed with the draft off, against transformers and against the memory floor (`make bench-gpu`).

The floor of a step is the bytes of weights that it reads over the bandwidth of a large device-to-device copy, which
counts bytes read plus bytes written. `--profile` shows where the time of one step goes; `--tiny` runs on a CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from decode_loop import decoder
from decode_model import Setup, engine_model, random_tensors, setup, transformers_model, weight_bytes
from decode_profile import show_profile
from rich.console import Console
from rich.table import Table

# bf16 logits of sixteen layers differ by a few per cent; of another model, by more than their own size.
LOGITS_BOUND = 0.1


def main() -> None:
    """Measure, print a table, write JSON."""
    arguments = _arguments()
    given = setup(arguments.tiny, arguments.seed, tuple(arguments.batch) if arguments.batch else None)
    console = Console()
    with torch.inference_mode():
        tensors = random_tensors(given)
        dense = engine_model(given, tensors)
        if arguments.profile:
            show_profile(decoder(dense, given, given.batches[0]), prompts(given, given.batches[0]), console)
            return
        result = measure(given, dense, tensors, console)
    console.print(_table(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def measure(given: Setup, dense: Any, tensors: dict[str, torch.Tensor], console: Console) -> dict[str, Any]:
    """Everything measured, times in milliseconds, bandwidth in bytes per second."""
    bandwidth = copy_bandwidth(given)
    floor = 1e3 * weight_bytes(dense) / bandwidth
    other = transformers_model(given, tensors)
    rows = []
    for batch in given.batches:
        with console.status(f"batch {batch}"):
            rows.append(_measure_batch(given, dense, other, batch, floor))
    name = torch.cuda.get_device_name() if given.device == "cuda" else "cpu"
    return {
        "device": name,
        "torch": torch.__version__,
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
    loop = decoder(dense, given, batch)
    loop.prefill(ids)
    difference = _relative(loop.logits, other(ids).logits[:, -1])
    if not difference < LOGITS_BOUND:
        raise RuntimeError(f"logits differ from transformers' by {difference:.3g} of their size; speed means nothing")

    def steps() -> None:
        for _ in range(given.new - 1):
            loop.step()

    engine = timed(given, steps, before=lambda: loop.prefill(ids)) / (given.new - 1)
    whole, first = (_generate(given, other, ids, new) for new in (given.new, 1))
    theirs = (whole - first) / (given.new - 1)
    return {
        "batch": batch,
        "engine_ms": engine,
        "transformers_ms": theirs,
        "tokens_per_second": 1e3 * batch / engine,
        "times_transformers": theirs / engine,
        "of_floor": floor / engine,
        "logits_difference": difference,
    }


def _generate(given: Setup, model: Any, ids: torch.Tensor, new: int) -> float:
    """Milliseconds of one greedy `generate` of exactly `new` tokens a request."""
    mask = torch.ones_like(ids)

    def run() -> None:
        model.generate(ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False)

    return timed(given, run)


def prompts(given: Setup, batch: int) -> torch.Tensor:
    """Random prompts [B, n]."""
    generator = torch.Generator().manual_seed(given.seed)
    return torch.randint(0, given.sizes["vocab_size"], (batch, given.prompt), generator=generator).to(given.device)


def timed(given: Setup, run: Callable[[], None], before: Callable[[], object] = lambda: None) -> float:
    """Median milliseconds of `run` over the repeats, after one that does not count."""
    times = []
    for _ in range(given.repeats + 1):
        before()
        times.append(_once(given, run))
    return statistics.median(times[1:])


def _once(given: Setup, run: Callable[[], None]) -> float:
    if given.device != "cuda":
        start = time.perf_counter()
        run()
        return 1e3 * (time.perf_counter() - start)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def copy_bandwidth(given: Setup) -> float:
    """Bytes per second of a large copy, read plus written."""
    source = torch.randint(0, 255, (given.copy_bytes,), dtype=torch.uint8, device=given.device)
    target = torch.empty_like(source)
    count = 5

    def copies() -> None:
        for _ in range(count):
            target.copy_(source)

    return 2 * count * given.copy_bytes / (1e-3 * timed(given, copies))


def _relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got.float() - expected.float()).norm() / expected.float().norm())


def _table(result: dict[str, Any]) -> Table:
    title = f"{result['device']}: floor {result['floor_ms']:.3f} ms, copy {result['copy_bandwidth'] / 1e12:.2f} TB/s"
    table = Table(title=title)
    for name in ("batch", "engine ms/step", "tokens/s", "transformers ms/step", "times transformers", "of floor"):
        table.add_column(name, justify="right")
    for row in result["batches"]:
        table.add_row(
            str(row["batch"]),
            f"{row['engine_ms']:.3f}",
            f"{row['tokens_per_second']:.0f}",
            f"{row['transformers_ms']:.3f}",
            f"{row['times_transformers']:.1f}",
            f"{100 * row['of_floor']:.1f} %",
        )
    return table


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a tiny model on the CPU, to try the script itself")
    parser.add_argument("--profile", action="store_true", help="show the kernels of one step and stop")
    parser.add_argument("--batch", type=int, action="append", help="batch size, may be given several times")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
