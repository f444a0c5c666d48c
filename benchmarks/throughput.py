"""Probe scenarios per second of one process, and how the time splits into engine, reference and compare (`make bench`).

A scenario is one base pair: solve, reference run, engine run, every contract judged; the variant run is left out. The
scenarios are those of the strategies, whose version is printed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import bench
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


@contextmanager
def timed(times: Times, part: str) -> Iterator[None]:
    """Add the time of the block to a part."""
    start = time.process_time()
    yield
    times[part] += time.process_time() - start


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = bench.parser(__doc__, "seed", *bench.KEPT)
    parser.add_argument("--scenarios", type=bench.at_least(1), default=200, help="how many")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="where the engine runs (default: cpu)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = arguments.device or "cpu"
    subject = EngineSubject(device=device)
    scenarios = generate(arguments.seed, arguments.scenarios)
    # On a GPU kernels are compiled for sizes that come for the first time.
    for scenario in scenarios if device == "cuda" else scenarios[:1]:
        pair(subject, scenario, dict.fromkeys(PARTS, 0.0))
    tune_gc()  # as the processes of a check and of a campaign do
    times, start = dict.fromkeys(PARTS, 0.0), time.perf_counter()
    for scenario in scenarios:
        pair(subject, scenario, times)
    result = bench.machine(device) | summary(times, time.perf_counter() - start, arguments.seed, len(scenarios))
    title = f"{result['scenarios']} scenarios, seed {result['seed']}, strategies version {result['strategies']}"
    rows = [(name, result["part_per_second"][name], result["share"][name]) for name in PARTS]
    columns = {
        "part": lambda row: row[0],
        "per CPU second": lambda row: f"{row[1]:.1f}",
        "share": lambda row: f"{100 * row[2]:.0f} %",
    }
    bench.show(title, [*rows, ("base pair", result["per_cpu_second"], 1)], columns, left=("part",))
    parts = {name: 1 / rate for name, rate in result["part_per_second"].items()}
    bench.keep(arguments, result, {"base pair": 1 / result["per_cpu_second"], **parts})


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


def summary(times: Times, wall: float, seed: int, count: int) -> dict[str, Any]:
    """Rates per second and shares of the time."""
    total = sum(times.values())
    return {
        "scenarios": count,
        "seed": seed,
        "strategies": STRATEGIES_VERSION,
        "seconds": wall,
        "per_second": count / wall,
        "per_cpu_second": count / total,
        "share": {name: seconds / total for name, seconds in times.items()},
        "part_per_second": {name: count / seconds for name, seconds in times.items()},
        "reference_to_engine": times["reference"] / times["engine"],
    }


if __name__ == "__main__":
    main()
