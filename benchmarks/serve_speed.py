"""What a scheduler's ways cost: a prefix that is served beside one that is run again, and a preemption and its resume.

The target is that of decode_speed.py with n-gram drafts, its rounds in captured graphs; every time is that of one
`Engine.step`, the host's part included. "hit" is the step that emits the first token of a prompt of which all but the
last page is in the prefix cache, "recompute" the same without a cache, each of a new prompt every time, in turns. A
batch is then served with pages for all, and with pages for three quarters of it, so that requests are preempted and run
their text again: `resume ms` is the median of the steps in which one does. `--tiny` runs on a CPU.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import bench
import torch
from decode_model import PAGE, Setup, setup
from rich.console import Console
from server import Columns, Server, Timed, dense_model, generator, prompts, sizes

from draftproof.engine.models.llama import Llama

PREFIX: Columns = {
    "prompt": lambda row: row["prompt"],
    "served": lambda row: row["served"],
    "hit ms": lambda row: f"{row['hit_ms']:.3f}",
    "recompute ms": lambda row: f"{row['recompute_ms']:.3f}",
    "recompute / hit": lambda row: f"{row['recompute_of_hit']:.1f}",
}
PREEMPTION: Columns = {
    "requests": lambda row: row["requests"],
    "preempted": lambda row: f"{row['preempted']:.1f}",
    "round ms": lambda row: f"{row['round_ms']:.3f}",
    "resume ms": lambda row: f"{row['resume_ms']:.3f}",
    "resume / round": lambda row: f"{row['resume_of_round']:.1f}",
    "few pages / all": lambda row: f"{row['few_of_all']:.2f}",
}


def main() -> None:
    """Measure, print two tables, write JSON."""
    arguments = bench.parser(__doc__, "tiny", "batch", "repeats", "seed", *bench.KEPT).parse_args()
    given = setup(arguments.tiny, arguments.seed, tuple(arguments.batch) if arguments.batch else None)
    # Long enough that requests outgrow the pages that they began with.
    given = replace(given, new=max(given.new, 2 * PAGE), repeats=arguments.repeats or 3 * given.repeats)
    console, lengths = Console(), (48, 96) if arguments.tiny else (512, 2048, 8192)
    with torch.inference_mode():
        dense = dense_model(given)
        with console.status("prefixes"):
            prefixes = [prefix(given, dense, length) for length in lengths]
        with console.status("preemption"):
            preempted = [preemption(given, dense, batch) for batch in given.batches if batch > 1]
    result = {**bench.machine(given.device), "seed": given.seed, "prefixes": prefixes, "preemption": preempted}
    bench.show(f"{result['device']}: the first token of a prompt", prefixes, PREFIX)
    bench.show(f"{result['device']}: a batch with few pages", preempted, PREEMPTION)
    seconds = bench.milliseconds(prefixes, "prompt") | bench.milliseconds(preempted, "requests")
    bench.keep(arguments, result, seconds)


def prefix(given: Setup, dense: Llama, length: int) -> dict[str, Any]:
    """Return the milliseconds to the first token of a prompt of `length` tokens, with its prefix served and run."""
    config = sizes(given, 1, length, new=2)
    # Pages for the prefix that is kept and for the request that is served it.
    pages = 2 * config.pages
    cached = Server(given, dense, replace(config, prefix_cache=True, pages=pages))
    plain = Server(given, dense, replace(config, pages=pages))
    random, hits, again, served = generator(given), [], [], set()
    for number in range(given.repeats + 2):
        text = prompts(given, random, 1, length)[0]
        other = (*text[:-1], (text[-1] + 1) % given.sizes["vocab_size"])
        cached.serve([text], 2)
        (hit, *_), (run, *_) = cached.serve([other], 2), plain.serve([other], 2)
        if number >= 2:
            hits.append(hit.seconds)
            again.append(run.seconds)
            served.add(hit.plan.prefill[0].cached)
    if len(served) != 1 or not min(served):
        raise RuntimeError(f"the prefix cache served {sorted(served)} tokens of {length}; there is nothing to time")
    hit_ms, recompute_ms = 1e3 * statistics.median(hits), 1e3 * statistics.median(again)
    return {
        "prompt": length,
        "served": served.pop(),
        "hit_ms": hit_ms,
        "recompute_ms": recompute_ms,
        "recompute_of_hit": recompute_ms / hit_ms,
    }


def preemption(given: Setup, dense: Llama, batch: int) -> dict[str, Any]:
    """Return what a batch takes with pages for all of its requests, and with three quarters of them."""
    config = sizes(given, batch, given.prompt, new=given.new)
    few = replace(config, pages=max(config.pages // batch, 3 * config.pages // 4), preemption=True)
    servers = {"all": Server(given, dense, config), "few": Server(given, dense, few)}
    random = generator(given)
    runs: dict[str, list[list[Timed]]] = {name: [] for name in servers}
    for _ in range(given.repeats + 1):
        asked = prompts(given, random, batch, given.prompt)
        for name, server in servers.items():
            runs[name].append(server.serve(asked, given.new))
    taken = {name: [sum(step.seconds for step in run) for run in of[1:]] for name, of in runs.items()}
    steps = [step for run in runs["few"][1:] for step in run]
    resumed = [step.seconds for step in steps if step.resumes]
    if not resumed:
        raise RuntimeError(f"none of {batch} requests was preempted with {few.pages} pages; there is nothing to time")
    rounds = [step.seconds for run in runs["all"][1:] for step in run if not step.plan.prefill]
    resume_ms, round_ms = 1e3 * statistics.median(resumed), 1e3 * statistics.median(rounds)
    return {
        "requests": batch,
        "preempted": sum(len(step.plan.preempted) for step in steps) / given.repeats,
        "round_ms": round_ms,
        "resume_ms": resume_ms,
        "resume_of_round": resume_ms / round_ms,
        "few_of_all": statistics.median(
            few_pages / every for few_pages, every in zip(taken["few"], taken["all"], strict=True)
        ),
    }


if __name__ == "__main__":
    main()
