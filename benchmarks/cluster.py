"""Workers in a Ray cluster beside as many in a pool of processes on this machine."""

from __future__ import annotations

import tempfile
import time
from argparse import Namespace
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from draftproof.harness.cluster.scenarios import OrderPool
from draftproof.harness.workers.messages import Order, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.properties.strategies.scenarios import generate


def cluster(given: Namespace) -> Iterator[dict[str, Any]]:
    """Time workers in a Ray cluster beside as many in a pool of processes on this machine, in pairs.

    Both have their workers from the beginning and run the same scenarios, each first every other time: so what else the
    machine does falls on both. The cluster is one that runs on this machine already, with a core for each worker, as
    `ray start --head --num-cpus 2` makes it.
    """
    orders = [Order(number=at, scenario=one) for at, one in enumerate(generate(given.seed, given.scenarios))]
    with (
        tempfile.TemporaryDirectory() as folder,
        Pool(SubjectSpec(), given.workers, Path(folder) / "local") as local,
        OrderPool(given.cluster, SubjectSpec(), given.workers, Path(folder) / "cluster") as there,
    ):
        # Workers start, and what they need is imported.
        for pool in (local, there):
            seconds(pool, orders)
        for number in range(given.repeats):
            sides: list[tuple[str, Pool | OrderPool]] = [("local_s", local), ("cluster_s", there)]
            times = {name: seconds(pool, orders) for name, pool in (sides[::-1] if number % 2 else sides)}
            here, far = times["local_s"], times["cluster_s"]
            yield {"pair": number, "local_s": here, "cluster_s": far, "local_of_cluster": here / far}


def seconds(pool: Pool | OrderPool, orders: Sequence[Order]) -> float:
    """Return how long a pool takes, which gets an order for each worker that is free, as a campaign hands them out."""
    waiting, done, began = deque(orders), 0, time.perf_counter()
    while done < len(orders):
        while waiting and pool.free > 0:
            pool.submit(waiting.popleft())
        done += len(pool.poll(0.2))
    return time.perf_counter() - began
