"""Probe scenarios of one process, and how their time splits into engine, reference and compare."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from draftproof.engine.subject import EngineSubject
from draftproof.harness.collector import tune_gc
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.observed_run import read_run
from draftproof.properties.judge import judge
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.strategies.version import STRATEGIES_VERSION
from draftproof.properties.values.scenario import Scenario
from draftproof.reference.answer import follow
from draftproof.reference.solved import solved

PARTS = ("engine", "reference", "compare")
Times = dict[str, float]
"""Seconds of CPU time spent in each part."""


def scenarios(given: Namespace) -> Iterator[dict[str, Any]]:
    """Time probe scenarios in one process: the engine, the reference and the comparison.

    A scenario is one base pair: solve, reference run, engine run, every contract judged; the variant run is left out.
    The scenarios are those of the strategies, whose version is shown.
    """
    torch.set_num_threads(1)
    subject, made = EngineSubject(device=given.device), generate(given.seed, given.scenarios)
    # On a GPU kernels are compiled for sizes that come for the first time.
    for scenario in made if given.device == "cuda" else made[:1]:
        pair(subject, scenario, dict.fromkeys(PARTS, 0.0))
    tune_gc()  # as the processes of a check and of a campaign do
    times, start = dict.fromkeys(PARTS, 0.0), time.perf_counter()
    for scenario in made:
        pair(subject, scenario, times)
    wall, total = time.perf_counter() - start, sum(times.values())
    for part, taken in {**times, "base pair": total}.items():
        each = {"each_ms": 1e3 * taken / len(made), "per_cpu_second": len(made) / taken, "share": taken / total}
        yield {
            "part": part,
            **each,
            "scenarios": len(made),
            "wall_per_second": len(made) / wall,
            "strategies": STRATEGIES_VERSION,
        }


@contextmanager
def timed(times: Times, part: str) -> Iterator[None]:
    """Add the time of the block to a part."""
    start = time.process_time()
    yield
    times[part] += time.process_time() - start


def pair(subject: EngineSubject, scenario: Scenario, times: Times) -> None:
    """Run the base pair of a scenario. Raises RuntimeError if it does not agree: its speed would mean nothing."""
    with timed(times, "reference"):
        known = solved(scenario)
    with timed(times, "engine"):
        trace = subject.run(scenario, known.script)
    with timed(times, "reference"):
        known = follow(known, read_run(scenario, trace))
    with timed(times, "compare"):
        assert known.trace is not None
        judged = judge(Evidence(scenario, known.script, known.trace, trace))
    if not judged.passed:
        raise RuntimeError(f"engine and reference diverge: {judged.first}")
