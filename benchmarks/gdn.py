"""The gated delta net kernels at the sizes of Qwen3-Next."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import timing
import torch
from gdn_buffers import Setup, sets, setup
from gdn_cases import cases, check


def gdn(given: Namespace) -> Iterator[dict[str, Any]]:
    """Time the gated delta net kernels at the sizes of Qwen3-Next, and both ways to commit as whole rounds.

    Each case is a CUDA graph of launches one after the other, so a time includes the gap between two dependent
    launches. "cold" goes round in buffers of 2 GiB, more than any cache holds; "hot" stays on one set, which a cache
    holds in small batches. The few bytes of a small batch's convolution may be held in both. "of copy" is the cold
    case's bytes per second over those of a large device-to-device copy, read plus written, measured in the same run.
    Bytes follow from shapes (gdn_cases.py); in replay every token of a round is accepted, the most there is to fold.

    Wanted of a verify are 0.9 of a copy in the largest batch, less than 6 us in the smallest, and of a round of replay
    a third of the time of a round of snapshots. `--tiny` runs without graphs.
    """
    of = setup(given)
    torch.set_num_threads(os.cpu_count() or 1)  # of the eager op, which everything is held to
    copy = timing.copy_bandwidth(of.device, of.copy_bytes)
    for tokens in of.tokens:
        for batch in of.batches:
            check(of, batch, tokens)
            for case in cases(of, sets(of, batch, tokens)):
                yield {"op": case.name, "batch": batch, "tokens": tokens, **timed(of, case.bytes, case.launches, copy)}


def timed(given: Setup, moved: int, launches: Any, copy: float) -> dict[str, float]:
    """Return what launches on several sets of buffers take, and the share of a copy's bandwidth that they reach."""
    cold, hot = (timing.launch_seconds(given.device, some) for some in (launches, launches[:1]))
    return {"bytes": moved, "cold_us": 1e6 * cold, "hot_us": 1e6 * hot, "of_copy": moved / cold / copy}
