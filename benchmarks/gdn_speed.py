"""Speed of the gated delta net kernels at the sizes of Qwen3-Next, beside flash-linear-attention (`make bench-gpu`).

Each case is a CUDA graph of launches one after the other, so a time includes the gap between two dependent launches.
"cold" goes round in buffers of 2 GiB, more than any cache holds; "hot" stays on one set, which a cache holds in small
batches. The few bytes of a small batch's convolution may be held in both. "of copy" is the cold case's bytes per second
over those of a large device-to-device copy, read plus written, measured in the same run. Bytes follow from shapes, see
gdn_cases.py; in replay every token of a round is accepted, the most there is to fold. `--tiny --device cpu` tries the
script itself, without graphs.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import bench
import torch
from gdn_buffers import Buffers, Setup, buffers, setup
from gdn_cases import FLA, Case, cases, check
from rich.console import Console

MOST_SETS = 256
FLA_DIFFERS = "its decay and beta are computed before, its states are contiguous (no slots), its results new tensors"
COPY_GOAL, LATENCY_GOAL, REPLAY_GOAL = 0.9, 6e-6, 3.0
COLUMNS: dict[str, Callable[[dict[str, Any]], object]] = {
    "batch": lambda row: row["batch"],
    "op": lambda row: row["op"],
    "MB moved": lambda row: f"{row['bytes'] / 1e6:.2f}",
    "us cold": lambda row: f"{1e6 * row['cold']:.2f}",
    "us hot": lambda row: f"{1e6 * row['hot']:.2f}",
    "GB/s cold": lambda row: f"{row['rate'] / 1e9:.0f}",
    "of copy": lambda row: f"{100 * row['of_copy']:.1f} %",
}
GOAL_COLUMNS: dict[str, Callable[[dict[str, Any]], object]] = {
    "goal": lambda goal: goal["goal"],
    "measured": lambda goal: f"{goal['value']:.3g}",
    "wanted": lambda goal: f"{goal['bound']:.3g}",
    "": lambda goal: "met" if goal["met"] else "NOT MET",
}


def main() -> None:
    """Check, measure, print tables, write JSON."""
    parser = bench.parser(__doc__, "tiny", "batch", "tokens", "seed", *bench.KEPT)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    given, console = _setup(arguments), Console(width=120)
    torch.set_num_threads(os.cpu_count() or 1)  # of the eager op, which everything is held to
    with torch.inference_mode():
        result = measure(given, console)
    console.print(f"{FLA}: {result['fla']}")
    if given.judged:
        bench.show("goals", result["goals"], GOAL_COLUMNS, left=("goal",))
    else:
        console.print("goals: not judged at chosen sizes")
    seconds = {
        f"{row['op']}, batch {row['batch']}, {row['tokens']} tokens, {heat}": row[heat]
        for row in result["rows"]
        if row["op"] != FLA
        for heat in ("cold", "hot")
    }
    bench.keep(arguments, result, seconds)


def measure(given: Setup, console: Console) -> dict[str, Any]:
    """Everything measured, each table shown as soon as it is whole; times in seconds, bandwidth in bytes per second."""
    fla, said = _fla(given)
    copy = bench.copy_bandwidth(given.device, given.copy_bytes)
    rows: list[dict[str, Any]] = []
    machine = bench.machine(given.device)
    for tokens in given.tokens:
        for batch in given.batches:
            with console.status(f"batch {batch}, {tokens} tokens"):
                check(given, batch, tokens, fla)
                timed = cases(given, _sets(given, batch, tokens), fla)
                rows.extend(_row(given, case, copy) | {"batch": batch, "tokens": tokens} for case in timed)
        shown = (row for row in rows if row["tokens"] == tokens)
        _show(f"{machine['device']}: {tokens} tokens a row, copy {copy / 1e9:.0f} GB/s", shown)
    return {
        **machine,
        "seed": given.seed,
        "copy_bandwidth": copy,
        "fla": said,
        "rows": rows,
        "goals": list(goals(given, rows)) if given.judged else [],
    }


def _row(given: Setup, case: Case, copy: float) -> dict[str, Any]:
    cold, hot = (bench.launch_seconds(given.device, launches) for launches in (case.launches, case.launches[:1]))
    rate = case.bytes / cold
    return {"op": case.name, "bytes": case.bytes, "cold": cold, "hot": hot, "rate": rate, "of_copy": rate / copy}


def _sets(given: Setup, batch: int, tokens: int) -> list[Buffers]:
    """As many sets of buffers as fill the rotation, at least two."""
    first = buffers(given, batch, tokens, given.seed)
    count = max(2, min(MOST_SETS, -(-given.rotation // first.nbytes)))
    return [first, *(buffers(given, batch, tokens, given.seed + index) for index in range(1, count))]


def goals(given: Setup, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the goals at the smallest and the largest batch, and whether they are reached."""
    found = {(row["op"], row["batch"], row["tokens"]): row for row in rows}
    small, large, most = min(given.batches), max(given.batches), max(given.tokens)
    for tokens in given.tokens:
        share = found["gdn_verify", large, tokens]["of_copy"]
        yield _goal(f"gdn_verify, batch {large}, {tokens} tokens: of copy", share, COPY_GOAL, share >= COPY_GOAL)
    few = given.tokens[len(given.tokens) // 2]
    row = found["gdn_verify", small, few]
    for heat in ("cold", "hot"):
        name = f"gdn_verify, batch {small}, {few} tokens, {heat}: seconds"
        yield _goal(name, row[heat], LATENCY_GOAL, row[heat] < LATENCY_GOAL)
    for batch in given.batches:
        times = found["snapshot round", batch, most]["cold"] / found["replay round", batch, most]["cold"]
        name = f"replay round, batch {batch}, {most} tokens: times as fast as the snapshot round"
        yield _goal(name, times, REPLAY_GOAL, times >= REPLAY_GOAL)


def _goal(name: str, value: float, bound: float, met: bool) -> dict[str, Any]:
    return {"goal": name, "value": value, "bound": bound, "met": met}


def _fla(given: Setup) -> tuple[Callable[..., Any] | None, str]:
    """flash-linear-attention's kernel and how its work differs, or None and why it is left out."""
    if given.device != "cuda":
        return None, "left out: it runs on CUDA only"
    try:
        module = importlib.import_module("fla.ops.gated_delta_rule")
    # A witness that is not needed: whatever its import dies of, the rest is measured, and the reason printed.
    except Exception as error:
        return None, f"left out: it cannot be imported: {type(error).__name__}: {error}"
    return module.fused_recurrent_gated_delta_rule, f"works as gdn_update does, but {FLA_DIFFERS}"


def _show(title: str, rows: Iterable[dict[str, Any]]) -> None:
    bench.show(title, rows, COLUMNS, left=("op",), section=lambda row: row["batch"])


def _setup(arguments: argparse.Namespace) -> Setup:
    given = setup(arguments.device, arguments.tiny, arguments.seed)
    if arguments.batch:
        given = replace(given, batches=tuple(sorted(set(arguments.batch))), judged=False)
    if arguments.tokens:
        given = replace(given, tokens=tuple(sorted(set(arguments.tokens))), judged=False)
    return given


if __name__ == "__main__":
    main()
