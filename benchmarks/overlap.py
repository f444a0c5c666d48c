"""Decode steps of a host that plans a step while the one before runs, beside those of one that waits."""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import timing
from decode_model import PAGE, Setup, setup
from server import Server, Text, Timed, dense_model, eagle_draft, generator, prompts, sizes
from texts import check_near, check_same, texts

from draftproof.engine.drafts.base import DraftModel
from draftproof.engine.models.llama import Llama


def overlap(given: Namespace) -> Iterator[dict[str, Any]]:
    """Time a host that plans a step while the one before runs: `OverlapEngine` beside `Engine`.

    The target is that of `decode`, an EAGLE head of the same sizes drafts on the device, and all rounds are captured
    graphs. A batch is prefilled; from then until it has ended nobody waits for the device but the engine itself. A step
    is that wall time over the steps that had rounds, plain and overlapped in turns, of new prompts each time. Works of
    the overlap are `early`: they run as soon as they are given. Before times count, tokens of both are compared.

    "device" is what kernels and copies of a plain step take, by the profiler, in a run of its own; the rest of a plain
    step is the host's. "hidden" is the share of that rest which the overlap takes away. On a CPU a work runs while the
    host gives it: nothing overlaps, and what a device takes cannot be told.
    """
    of = setup(given)
    of = replace(of, new=max(of.new, 2 * PAGE))
    dense = dense_model(of)
    draft = eagle_draft(of, dense)
    for batch in of.batches:
        yield _overlap(of, dense, draft, batch)


def _overlap(given: Setup, dense: Llama, draft: DraftModel, batch: int) -> dict[str, Any]:
    """Return the milliseconds of a decode step of a batch, plain and overlapped."""
    config, random = sizes(given, batch, given.prompt, given.new), generator(given)
    plain = Server(given, dense, config, draft)
    overlapped = Server(given, dense, replace(config, overlap=("early",)), draft)
    times: dict[str, list[float]] = {"plain": [], "overlapped": []}
    differing = 0
    for turn in range(given.repeats + 1):
        asked = prompts(given, random, batch, given.prompt)
        own, steps = _decoded(plain, asked, given.new)
        its, ahead = _decoded(overlapped, asked, given.new)
        # The plain host knows when no row has drafts left, and its last step is narrower: it rounds otherwise.
        check_same([text[:-1] for text in own], [text[:-1] for text in its])
        differing += check_near(given, dense, asked, own, its)
        if turn:
            times["plain"].append(_of_step(steps))
            times["overlapped"].append(_of_step(ahead))
    plain_ms, overlapped_ms = (1e3 * statistics.median(taken) for taken in times.values())
    return {
        "batch": batch,
        "steps": _num_rounds(steps),
        "plain_ms": plain_ms,
        "overlapped_ms": overlapped_ms,
        "plain_of_overlapped": plain_ms / overlapped_ms,
        "near_ties": differing,
        **_of_device(given, plain, asked, plain_ms, overlapped_ms),
    }


def _decoded(server: Server, asked: Sequence[Text], budget: int) -> tuple[list[Text], list[Timed]]:
    """Return the texts of a batch, and the steps after that of its prompts."""
    first = _prefilled(server, asked, budget)
    steps = server.rest()
    if any(step.plan.prefill for step in steps):
        raise RuntimeError("a prompt ran beside rounds; there is no decode step to time")
    return texts([first, *steps]), steps


def _prefilled(server: Server, asked: Sequence[Text], budget: int) -> Timed:
    server.add(asked, budget)
    return server.step()


def _num_rounds(steps: Sequence[Timed]) -> int:
    """Return how many steps had rounds: the last of an overlap only takes results in."""
    return sum(bool(step.plan.decode) for step in steps)


def _of_step(steps: Sequence[Timed]) -> float:
    return sum(step.seconds for step in steps) / _num_rounds(steps)


def _of_device(
    given: Setup, plain: Server, asked: Sequence[Text], plain_ms: float, overlapped_ms: float
) -> dict[str, float]:
    """Return the device's milliseconds of a plain step and the share of the host's that is hidden, where there are."""
    if given.device != "cuda":
        return {}
    _prefilled(plain, asked, given.new)
    steps: list[Timed] = []
    busy = timing.device_seconds(lambda: steps.extend(plain.rest()))
    device_ms = 1e3 * busy / _num_rounds(steps)
    host_ms = plain_ms - device_ms
    hidden = {"hidden": (plain_ms - overlapped_ms) / host_ms} if host_ms > 0 else {}
    return {"device_ms": device_ms, **hidden}
