"""What a scheduler's ways cost: a prefix that is served beside one that is run again, a preemption and its resume."""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from decode_model import PAGE, Setup, setup
from server import Server, Timed, dense_model, generator, prompts, sizes

from draftproof.engine.models.llama import Llama


def prefix(given: Namespace) -> Iterator[dict[str, Any]]:
    """Time the step to the first token of a prompt, its prefix served from the cache and run again.

    The target is that of `decode` with n-gram drafts; every time is that of one `Engine.step`, the host's part
    included. "hit" is the step of a prompt of which all but the last page is in the prefix cache, "recompute" the same
    without a cache, each of a new prompt every time, in turns.
    """
    of = setup(given, times=3)
    dense = dense_model(of)
    for length in given.tokens or ((48, 96) if given.tiny else (512, 2048, 8192)):
        yield _prefix(of, dense, length)


def preemption(given: Namespace) -> Iterator[dict[str, Any]]:
    """Time a batch with pages for three quarters of it, beside one with pages for all.

    So requests give way and run their text again: "resume" is the median of the steps in which one does.
    """
    of = setup(given, times=3)
    # Long enough that requests outgrow the pages that they began with.
    of = replace(of, new=max(of.new, 2 * PAGE))
    dense = dense_model(of)
    for batch in of.batches:
        if batch > 1:
            yield _preemption(of, dense, batch)


def _prefix(given: Setup, dense: Llama, length: int) -> dict[str, Any]:
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


def _preemption(given: Setup, dense: Llama, batch: int) -> dict[str, Any]:
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
        "batch": batch,
        "preempted": sum(len(step.plan.preempted) for step in steps) / given.repeats,
        "round_ms": round_ms,
        "resume_ms": resume_ms,
        "resume_of_round": resume_ms / round_ms,
        "few_of_all": statistics.median(
            few_pages / every for few_pages, every in zip(taken["few"], taken["all"], strict=True)
        ),
    }
