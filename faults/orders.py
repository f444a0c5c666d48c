"""What goes to the fork server and what comes back: frozen values, one JSON line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import msgspec

from draftproof.faults.baseline import BaselineRun, followed
from draftproof.faults.trial import Expectation, SeedResult
from draftproof.properties.lib.base import Value
from draftproof.properties.values.scenario import Scenario

CLEAN = "(clean twin)"
WHOLE = " (whole scenarios)"
"""What the id of a clean twin begins with, and what the id of a kernel's fault in whole scenarios ends with."""
WHOLE_LIST = 1 << 30
"""More examples than a seed has."""


class Task(Value, frozen=True, kw_only=True):
    """One fault, or a clean twin: a copy of the sources, the names of its hunks, and what must notice it.

    With `ops` it meets calls of these kernels instead of scenarios, with `baseline` unsteered scenarios after them.
    `own`: path -> the lines there that the fault wrote, which make it stale if they name what is not there.
    """

    id: str
    folder: str
    hunks: tuple[str, ...]
    expected: Expectation
    ops: tuple[str, ...] = ()
    baseline: bool = False
    own: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)


class Batch(Value, frozen=True, kw_only=True):
    """What a fork server does: every task on the scenarios of every seed.

    `examples`: how many calls each kernel gets a seed. `deadline`: seconds that one example may take. `baseline`: the
    unsteered scenarios. `interpreted`: Triton's kernels run in its interpreter. `met`: how many examples of each seed
    faults met that are not among the tasks, because their results are known; none if there are no such faults.
    """

    seeds: tuple[int, ...]
    examples: int
    scenarios: tuple[tuple[Scenario, ...], ...]
    tasks: tuple[Task, ...]
    device: str
    parallel: int
    deadline: float
    baseline: tuple[Scenario, ...] = ()
    interpreted: bool = False
    met: tuple[int, ...] = ()


class TaskResult(Value, frozen=True, kw_only=True):
    """What became of a task: one result a seed, hunks that never had an effect, and the seconds it took.

    `baseline`: what it did on the unsteered scenarios, if there were any. `error`: an error of our own. `nodes`: where
    in a cluster it ran.
    """

    id: str
    seeds: tuple[SeedResult, ...] = ()
    inert: tuple[str, ...] = ()
    baseline: BaselineRun | None = None
    seconds: float = 0.0
    error: str = ""
    nodes: tuple[str, ...] = ()


def is_twin(task: str) -> bool:
    """Return whether an id belongs to a clean twin."""
    return task.startswith(CLEAN)


def twin_id(ops: tuple[str, ...]) -> str:
    """Return the id of the clean twin of tasks that meet these kernels, or scenarios."""
    return " ".join((CLEAN, *ops))


def twins_of(tasks: Sequence[Task], folder: str) -> tuple[Task, ...]:
    """Return the clean twins of tasks, one for all that meet the same kernels, or scenarios; `folder` is clean."""
    plain = any(task.baseline for task in tasks)
    return tuple(
        Task(id=twin_id(ops), folder=folder, hunks=(), expected=Expectation(), ops=ops, baseline=plain)
        for ops in dict.fromkeys(task.ops for task in tasks)
    )


def most_met(results: Sequence[TaskResult], seeds: int) -> tuple[int, ...]:
    """Return for each seed how many examples there were until the last of the faults was noticed; WHOLE_LIST: all."""
    none, whole = (0,) * seeds, (WHOLE_LIST,) * seeds
    each = [tuple(of.examples or WHOLE_LIST for of in one.seeds) for one in results]
    whole_if_not_run = (one if len(one) == seeds else whole for one in each)
    return tuple(map(max, zip(none, *whole_if_not_run, strict=True)))


def joined(parts: Sequence[TaskResult]) -> TaskResult:
    """Return the result of a task over all seeds, from its results over some seeds each."""
    runs = [part.baseline for part in parts if part.baseline is not None]
    return TaskResult(
        id=parts[0].id,
        seeds=tuple(seed for part in parts for seed in part.seeds),
        inert=tuple(name for name in parts[0].inert if all(name in part.inert for part in parts)),
        baseline=reduce(followed, runs) if runs else None,
        seconds=sum(part.seconds for part in parts),
        nodes=tuple(sorted({node for part in parts for node in part.nodes})),
    )
