"""Scenarios a second of workers in a Ray cluster, beside as many in a pool of processes on this machine.

Both have their workers from the beginning and run the same scenarios, in pairs of which each is first every other time:
so what else the machine does falls on both. The cluster is one that runs on this machine already, with a core for each
worker, as `ray start --head --num-cpus 2` makes it. Shown are the seconds of every pair, and the median of the ratios.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bench

from draftproof.harness.cluster.scenarios import OrderPool
from draftproof.harness.workers.messages import Order, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.properties.strategies.scenarios import generate

COLUMNS: dict[str, Callable[[Any], object]] = {
    "pair": lambda row: row["pair"],
    "first": lambda row: row["first"],
    "here": lambda row: f"{row['local']:.2f} s",
    "cluster": lambda row: f"{row['cluster']:.2f} s",
    "cluster's speed": lambda row: f"{row['local'] / row['cluster']:.3f}",
}


def main() -> None:
    """Time pairs, print a table, write JSON."""
    parser = bench.parser(__doc__, "seed", *bench.KEPT)
    parser.add_argument("--cluster", required=True, help="address of a Ray cluster on this machine")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scenarios", type=int, default=100, help="of one side of a pair")
    parser.add_argument("--pairs", type=int, default=9)
    arguments = parser.parse_args()
    orders = [Order(number=at, scenario=one) for at, one in enumerate(generate(arguments.seed, arguments.scenarios))]
    with (
        tempfile.TemporaryDirectory() as folder,
        Pool(SubjectSpec(), arguments.workers, Path(folder) / "local") as local,
        OrderPool(arguments.cluster, SubjectSpec(), arguments.workers, Path(folder) / "cluster") as cluster,
    ):
        # Workers start, and what they need is imported.
        for pool in (local, cluster):
            seconds(pool, orders)
        pairs = [pair(number, local, cluster, orders) for number in range(arguments.pairs)]
    ratios = [one["local"] / one["cluster"] for one in pairs]
    bench.show(f"{arguments.scenarios} scenarios, {arguments.workers} workers", pairs, COLUMNS)
    print(
        f"the cluster has {statistics.median(ratios):.3f} of the speed of the pool of this machine "
        f"(median of {len(ratios)} pairs; {min(ratios):.3f} to {max(ratios):.3f})"
    )
    shared = {name: statistics.median(one[name] for one in pairs) for name in ("local", "cluster")}
    bench.keep(arguments, {"pairs": pairs, "ratio": statistics.median(ratios)}, shared)


def pair(number: int, local: Pool, cluster: OrderPool, orders: Sequence[Order]) -> dict[str, Any]:
    """Return the seconds of both sides."""
    sides: list[tuple[str, Pool | OrderPool]] = [("local", local), ("cluster", cluster)]
    times = {name: seconds(pool, orders) for name, pool in (sides[::-1] if number % 2 else sides)}
    return {"pair": number, "first": next(iter(times)), **times}


def seconds(pool: Pool | OrderPool, orders: Sequence[Order]) -> float:
    """Return how long a pool takes, which gets an order for each worker that is free, as a campaign hands them out."""
    waiting, done, began = deque(orders), 0, time.perf_counter()
    while done < len(orders):
        while waiting and pool.free > 0:
            pool.submit(waiting.popleft())
        done += len(pool.poll(0.2))
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
