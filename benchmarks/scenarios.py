"""Scenarios of probes as a check runs them, and where their CPU time goes."""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import wraps
from typing import Any
from unittest.mock import patch

import psutil
import torch

from draftproof.engine.graphs.host import HostBackend, HostGraph
from draftproof.engine.subject import EngineSubject
from draftproof.engine.subject.recorder import TraceRecorder
from draftproof.harness import execute, lockstep, rank_runs
from draftproof.harness.collector import tune_gc
from draftproof.harness.execute import Executor
from draftproof.harness.workers.messages import Order
from draftproof.kernels.registry import CALLS
from draftproof.properties.coverage.counts import counts
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.strategies.version import STRATEGIES_VERSION
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.solved import solved


class Account:
    """CPU seconds by part, each without the parts that it calls, and how often each was called."""

    def __init__(self) -> None:
        self.seconds, self.calls = Counter[str](), Counter[str]()
        self._parts, self._since = ["other"], time.process_time()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that counts as a part."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[part] += 1
            self._turn()
            self._parts.append(part)
            try:
                return function(*args, **kwargs)
            finally:
                self._turn()
                self._parts.pop()

        return call

    def _turn(self) -> None:
        now = time.process_time()
        self.seconds[self._parts[-1]] += now - self._since
        self._since = now


PARTS = (
    (HostBackend, "capture", "engine: capture"),
    (HostGraph, "replay", "engine: replay"),
    *((TraceRecorder, name, "engine: record") for name in ("on_launch", "before_launch", "on_commit", "on_step")),
    (lockstep, "run_subject", "engine"),
    (lockstep, "answer", "reference: answer"),
    (lockstep, "answer_variant", "reference: answer"),
    (execute, "judge", "judge"),
    (rank_runs, "_run_world", "ranks: messages"),
)
"""What is timed: functions by where they are called from, and the part that each counts as."""


def scenarios(given: Namespace) -> Iterator[dict[str, Any]]:
    """Account for the CPU time of probe scenarios in one process, and in those of their ranks.

    The scenarios are those of the strategies, whose version is shown; all that a check does with one is in it. `calls`
    are of a scenario: of the engine its runs, without those of ranks. `ops` are the kernels that it calls: none where
    all scenarios have ranks.
    """
    torch.set_num_threads(1)
    account, subject = Account(), EngineSubject(device=given.device)
    made = account.timed("generate", generate)(given.seed, given.scenarios)
    solve, count = account.timed("reference: solve", solved), account.timed("count", counts)
    executor = Executor(subject, reference=solve, observe=lambda ran, _judged: count(ran))
    # On a GPU kernels are compiled for sizes that come for the first time.
    for number, scenario in enumerate(made if given.device == "cuda" else made[:1]):
        run(executor, number, scenario)
    tune_gc()  # as the processes of a check and of a campaign do
    with ExitStack() as patched:
        for owner, name, part in PARTS:
            patched.enter_context(patch.object(owner, name, account.timed(part, getattr(owner, name))))
        every, ops, of_ranks = account.timed("other", run), CALLS.total(), cpu_of_ranks()
        for part in account.seconds.keys() - {"generate"}:
            account.seconds[part] = account.calls[part] = 0
        start = time.perf_counter()
        for number, scenario in enumerate(made):
            every(executor, number, scenario)
        wall = time.perf_counter() - start
    account.seconds["ranks: processes"] = cpu_of_ranks() - of_ranks
    engine = sum(taken for part, taken in account.seconds.items() if part.startswith("engine"))
    total, ops = account.seconds.total(), CALLS.total() - ops
    for part, taken in [*sorted(account.seconds.items()), ("all", total)]:
        yield {
            "part": part,
            "each_ms": 1e3 * taken / len(made),
            "share": taken / total,
            "calls": account.calls[part] / len(made),
            "scenarios": len(made),
            "per_cpu_second": len(made) / total,
            "wall_per_second": len(made) / wall,
            "ops": ops / len(made),
            "us_an_op": 1e6 * engine / max(ops, 1),
            "strategies": STRATEGIES_VERSION,
        }


def cpu_of_ranks() -> float:
    """Return the CPU seconds of all processes below this one."""
    return sum(sum(one.cpu_times()[:2]) for one in psutil.Process().children(recursive=True))


def run(executor: Executor, number: int, scenario: Scenario) -> None:
    """Run and judge a scenario. Raises RuntimeError if it fails: its speed would mean nothing."""
    answer = executor.examine(Order(number=number, scenario=scenario, measured=False))
    if answer.outcome is not Outcome.PASS:
        raise RuntimeError(f"scenario {number} ended in {answer.outcome}: {answer.first or answer.reason}")
