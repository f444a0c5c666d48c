"""Time to closure of functional coverage, guided and unguided: bins over scenarios, and the holes that are left.

Scenarios run in isolated workers, since the process that generates them imports no engine. A scenario is everything
that a campaign does with one: reference, base run, variant run, every contract, coverage.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench
import psutil
from rich.console import Console

from draftproof.fuzz.campaign.guide import Guide
from draftproof.harness.workers.messages import Order, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.properties.coverage import holes, impossible, universe
from draftproof.properties.values.case import encode
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.scenario import Scenario

MILESTONES = (25, 50, 100, 200, 300, 400, 600, 800, 1200, 1600, 2400, 3200)


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = bench.parser(__doc__)
    parser.add_argument("--seed", type=int, nargs="+", default=[0], help="one measurement each")
    parser.add_argument("--budget", type=int, default=400, help="scenarios at most")
    parser.add_argument("--guided", choices=("both", "yes", "no"), default="both")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--holes", type=int, default=40, help="how many to name")
    parser.add_argument("--keep", type=Path, help="folder for scenarios that do not pass")
    arguments = parser.parse_args()
    console, results = Console(), []
    with tempfile.TemporaryDirectory() as folder, Pool(SubjectSpec(), arguments.workers, Path(folder)) as pool:
        for seed in arguments.seed:
            for guided in {"both": (True, False), "yes": (True,), "no": (False,)}[arguments.guided]:
                results.append(closure(pool, seed, arguments.budget, guided=guided, keep=arguments.keep))
                console.print(f"seed {seed}, {_way(guided)}: {_said(results[-1])}", highlight=False)
    _show(results)
    for result in results:
        console.print(f"seed {result['seed']}, {_way(result['guided'])}: {len(result['holes'])} holes", highlight=False)
        for name in result["holes"][: arguments.holes]:
            console.print(f"  {name}", highlight=False, markup=False)
    bench.write(arguments.json, results)


def closure(pool: Pool, seed: int, budget: int, *, guided: bool, keep: Path | None = None) -> dict[str, Any]:
    """Run blocks until no possible bin is missing, or `budget` scenarios have run.

    Scenarios that do not pass are kept in the folder `keep`.
    """
    guide, seen, corpus = Guide(seed, ALGORITHMS, guided=guided), Counter[str](), list[Scenario]()
    possible, reached, origins = len(universe(ALGORITHMS)), {}, Counter[str]()
    generating, before, count, number, last, failed, troubles = 0.0, _seconds(pool), 0, 0, 0, 0, set[str]()
    while count < budget and holes(seen, ALGORITHMS):
        start = time.process_time()
        proposed = guide.block(number, seen, corpus)
        generating += time.process_time() - start
        orders = [Order(number=place, scenario=one.scenario) for place, one in enumerate(proposed)]
        for one, answer in zip(proposed, pool.run(orders), strict=True):
            count += 1
            if answer.outcome != "PASS":
                failed += 1
                _keep(keep, one.scenario, f"{seed}-{number}-{count}")
            new = [name for name in answer.bins if name not in seen and not impossible(name)]
            seen.update(answer.bins)
            troubles.update(name for name in answer.bins if impossible(name))
            if new:
                last = count
                corpus.append(one.scenario)
                origins[one.origin.split()[0]] += len(new)
            if count in MILESTONES:
                reached[count] = possible - len(holes(seen, ALGORITHMS))
        number += 1
    missing = holes(seen, ALGORITHMS)
    return {
        "seed": seed,
        "guided": guided,
        "scenarios": count,
        "last_new": last,
        "possible": possible,
        "covered": possible - len(missing),
        "reached": reached,
        "new_by_origin": dict(origins),
        "generating_seconds": generating,
        "worker_seconds": _seconds(pool) - before,
        "failed": failed,
        "impossible_hit": sorted(troubles),
        "holes": list(missing),
    }


def _seconds(pool: Pool) -> float:
    """CPU seconds of the workers so far."""
    times = [psutil.Process(pid).cpu_times() for pid in pool.pids]
    return sum(one.user + one.system for one in times)


def _keep(folder: Path | None, scenario: Scenario, name: str) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(encode(scenario) + "\n", encoding="utf-8")


def _way(guided: bool) -> str:
    return "guided" if guided else "unguided"


def _said(result: dict[str, Any]) -> str:
    return (
        f"{result['covered']} of {result['possible']} bins after {result['scenarios']} scenarios (last new at "
        f"{result['last_new']}), CPU seconds: {result['worker_seconds']:.0f} in workers, "
        f"{result['generating_seconds']:.1f} generating; {result['failed']} not passed, "
        f"{len(result['impossible_hit'])} impossible bins hit"
    )


def _show(results: list[dict[str, Any]]) -> None:
    columns: dict[str, Callable[[dict[str, Any]], object]] = {
        "seed": lambda result: result["seed"],
        "": lambda result: _way(result["guided"]),
    }
    for count in MILESTONES:
        if any(count in result["reached"] for result in results):
            columns[str(count)] = lambda result, count=count: result["reached"].get(count, "")  # type: ignore[misc]
    columns["closed at"] = lambda result: "-" if result["holes"] else result["last_new"]
    bench.show(f"bins covered, of {results[0]['possible']}", results, columns)


if __name__ == "__main__":
    main()
