"""A step that runs a chunk of a prompt beside rounds: in one launch, and in two."""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from decode_model import Setup, setup
from server import NGRAM, STEPS, Plans, Server, Timed, dense_model, generator, prompts, sizes
from texts import check_near, texts

from draftproof.engine.config import EngineConfig
from draftproof.engine.models.llama import Llama
from draftproof.engine.stages import DecodeRow, Proposal

WARM = 2
WAYS = {
    "two": (("prefill", False), ("verify", True)),
    "packed": (("mixed", True),),
    "eager": (("mixed", False),),
}
"""What a step launches each way: kinds, and whether in a graph."""
PACKED = ("packed", "eager")


class Drafted(Plans):
    """Gives every round the same random drafts, as many as it wants."""

    def __init__(self, given: Setup, batch: int) -> None:
        super().__init__()
        drawn = torch.randint(given.sizes["vocab_size"], (batch, STEPS), generator=generator(given))
        self._drafts = drawn.to(given.device)

    def steer(self, batch: tuple[DecodeRow, ...], proposal: Proposal) -> Proposal:
        width = proposal.draft_tokens.shape[1]
        return Proposal(self._drafts[: len(batch), :width], tuple(row.num_drafts for row in batch))


def mixed(given: Namespace) -> Iterator[dict[str, Any]]:
    """Time a step that packs a chunk of a prompt beside verify rows, beside the same step in two launches.

    The target is that of `decode`. While a batch decodes, one prompt after another comes, each of one chunk and for one
    token. "two" is the `Engine.step` that runs the chunk, eagerly as every prefill, and then the rounds in their graph.
    "packed" runs both in one launch, in the graph of a token bucket that it fills; "eager" in one launch without a
    graph. Times include the host's part; all ways take turns. Every row verifies random drafts: whether n-grams match
    would be left to chance. What all ways emit is compared in the end: "near ties" are the texts of the way with most
    of them that differ, and part where two logits are as near as rounding (texts.py).
    """
    of = setup(given, times=3)
    dense = dense_model(of)
    for batch in of.batches:
        for chunk in given.tokens or ((16, 48) if given.tiny else (128, 512, 2048)):
            yield _mixed(of, dense, batch, chunk)


def _mixed(given: Setup, dense: Llama, batch: int, chunk: int) -> dict[str, Any]:
    """Return the milliseconds of a step that runs a chunk beside a round of each request of a batch."""
    configs, random = _configs(given, batch, chunk), generator(given)
    servers = {way: Server(given, dense, config, NGRAM, Drafted(given, batch)) for way, config in configs.items()}
    asked = prompts(given, random, batch, given.prompt)
    steps: dict[str, list[Timed]] = {}
    for way, server in servers.items():
        server.add(asked, _budget(given))
        steps[way] = [server.step()]
    for _ in range(WARM + given.repeats):
        coming = prompts(given, random, 1, chunk)
        asked += coming
        for way, server in servers.items():
            server.add(coming, 1)
            steps[way].append(server.step())
    emitted = {way: texts(run) for way, run in steps.items()}
    differing = {way: check_near(given, dense, asked, emitted["two"], emitted[way]) for way in PACKED}
    taken = {way: milliseconds(way, run[1:], batch) for way, run in steps.items()}
    return {
        "batch": batch,
        "verify_tokens": batch * (STEPS + 1),
        "chunk": chunk,
        **{f"{way}_ms": one for way, one in taken.items()},
        **{f"two_of_{way}": taken["two"] / taken[way] for way in PACKED},
        "texts": len(asked),
        "near_ties": max(differing.values()),
    }


def _configs(given: Setup, batch: int, chunk: int) -> dict[str, EngineConfig]:
    """Return how each way is configured: room for a batch and a prompt beside it."""
    whole = sizes(given, batch + 1, max(given.prompt, chunk), _budget(given))
    two = replace(whole, sizes=(batch,))
    packed = replace(two, mixed=True, token_sizes=(batch * (STEPS + 1) + chunk,))
    return {"two": two, "packed": packed, "eager": replace(packed, token_sizes=())}


def _budget(given: Setup) -> int:
    """Return tokens for rounds with all their drafts, even if each of these were accepted."""
    return 1 + (STEPS + 1) * (WARM + given.repeats)


def milliseconds(way: str, steps: Iterable[Timed], batch: int) -> float:
    """Return the median of the steps after the first few.

    Raises RuntimeError if a step had no chunk, not a whole round of every request, or other launches than its way has.
    """
    times = []
    for step in steps:
        chunks, drafts = len(step.plan.prefill), [row.num_drafts for row in step.plan.decode]
        launched = tuple((launch.kind, launch.size > 0) for launch in step.launches)
        if chunks != 1 or drafts != [STEPS] * batch or launched != WAYS[way]:
            ran = f"{chunks} chunks beside rounds of {drafts} drafts, in {launched}"
            raise RuntimeError(f"a step ran {ran}; there is nothing to time")
        times.append(step.seconds)
    return 1e3 * statistics.median(times[WARM:])
