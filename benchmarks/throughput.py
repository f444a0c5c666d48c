"""Probe scenarios per second on one core, and how the time splits into engine, reference and compare (`make bench`).

A scenario is one base pair: solve, reference run, engine run, every channel compared. Scenarios are drawn by a
generator of this file's own, so that the numbers stay comparable when the strategies change.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from draftproof.engine.subject import EngineSubject
from draftproof.properties.compare import first_divergence
from draftproof.properties.contracts.evidence import Evidence
from draftproof.properties.values.scenario import (
    Graphs,
    Memory,
    ProbeHead,
    ProbeModel,
    Request,
    RoundWish,
    Scenario,
    Schedule,
)
from draftproof.properties.values.validate import validate
from draftproof.reference.memo import Memo
from draftproof.reference.run import run as run_reference
from draftproof.reference.solve import solve

PARTS = ("engine", "reference", "compare")


class Clock:
    """Seconds of CPU time spent in each part."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the time of the block."""
        start = time.process_time()
        yield
        self.seconds[name] += time.process_time() - start


def main() -> None:
    """Measure, print a table, write JSON."""
    arguments = _arguments()
    torch.set_num_threads(1)
    subject = EngineSubject(device="cpu")
    seeds = [arguments.seed + i for i in range(arguments.scenarios)]
    pair(subject, draw(arguments.seed - 1), Clock())
    clock, start = Clock(), time.perf_counter()
    for seed in seeds:
        pair(subject, draw(seed), clock)
    result = summary(clock, time.perf_counter() - start, seeds)
    Console().print(_table(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def pair(subject: EngineSubject, scenario: Scenario, clock: Clock) -> None:
    """Run the base pair of a scenario. Raises RuntimeError if it does not agree: its speed would mean nothing."""
    with clock.part("reference"):
        memo = Memo()
        script = solve(scenario, memo)
        reference = run_reference(scenario, script, memo)
    with clock.part("engine"):
        trace = subject.run(scenario, script)
    with clock.part("compare"):
        evidence = Evidence(scenario, script, reference, trace)
        shared = sorted(reference.channels & trace.channels)
        found = [first_divergence("bench", channel, *evidence.pair(channel)) for channel in shared]
    wrong = [divergence for divergence in found if divergence is not None]
    if wrong:
        raise RuntimeError(f"engine and reference diverge: {wrong[0]}")


def draw(seed: int) -> Scenario:
    """A scenario as campaigns have them: a few requests, several rounds each, half of them under graphs."""
    rng = random.Random(seed)
    kv_heads, steps, page = rng.randint(1, 2), rng.randint(1, 4), rng.choice((1, 2, 3, 4, 7))
    model = ProbeModel(
        seed=rng.randrange(16),
        layers=rng.randint(1, 3),
        heads=kv_heads * rng.randint(1, 3),
        kv_heads=kv_heads,
        key_dim=3,
        value_dim=5,
        lanes=6,
        vocab=41,
    )
    head = ProbeHead(seed=rng.randrange(16), heads=3, kv_heads=3, key_dim=2, value_dim=4, lanes=5)
    requests = tuple(_request(rng, model.vocab, steps) for _ in range(rng.randint(1, 4)))
    longest = max(len(request.prompt) + request.budget for request in requests) + steps + 1
    return validate(
        Scenario(
            model=model,
            head=head,
            steps=steps,
            memory=Memory(page_size=page, pages=-(-longest // page) * len(requests), request_slots=4, max_len=longest),
            graphs=Graphs(sizes=rng.choice(((), (2, 4), (1, 4)))),
            schedule=Schedule(max_batch=rng.randint(1, 4), chunk=rng.randint(2, 16)),
            requests=requests,
        )
    )


def _request(rng: random.Random, vocab: int, steps: int) -> Request:
    wishes = [RoundWish(drafts=drafts, accept=rng.randint(-1, drafts)) for drafts in _drafts(rng, steps)]
    prompt = tuple(rng.randrange(vocab) for _ in range(rng.randint(1, 20)))
    return Request(arrival=rng.randint(0, 3), prompt=prompt, budget=rng.randint(1, 12), rounds=tuple(wishes))


def _drafts(rng: random.Random, steps: int) -> list[int]:
    return [rng.randint(0, steps) for _ in range(rng.randint(1, 4))]


def summary(clock: Clock, wall: float, seeds: list[int]) -> dict[str, Any]:
    """Rates per second and shares of the time."""
    total = sum(clock.seconds.values())
    return {
        "scenarios": len(seeds),
        "first_seed": seeds[0],
        "last_seed": seeds[-1],
        "seconds": wall,
        "per_second": len(seeds) / wall,
        "share": {name: seconds / total for name, seconds in clock.seconds.items()},
        "part_per_second": {name: len(seeds) / seconds for name, seconds in clock.seconds.items()},
        "reference_to_engine": clock.seconds["reference"] / clock.seconds["engine"],
    }


def _table(result: dict[str, Any]) -> Table:
    rate: Callable[[float], str] = "{:.1f}".format
    title = f"{result['scenarios']} scenarios, seeds {result['first_seed']} .. {result['last_seed']}"
    table = Table(title=title)
    for column in ("part", "per second", "share"):
        table.add_column(column, justify="left" if column == "part" else "right")
    for name in PARTS:
        table.add_row(name, rate(result["part_per_second"][name]), f"{100 * result['share'][name]:.0f} %")
    table.add_row("base pair", rate(result["per_second"]), "100 %")
    return table


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of the first scenario; each has its own")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
