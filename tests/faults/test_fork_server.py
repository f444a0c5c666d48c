"""How much of a list a clean twin runs: what the faults beside it met, and all of it where that is not known."""

import pytest
from msgspec.structs import replace

from draftproof.faults.fork_server import FaultsBeside, work
from draftproof.faults.orders import CLEAN, WHOLE_LIST, Batch, Task, TaskResult, is_twin, most_met, twins_of
from draftproof.faults.trial import Expectation, FaultOutcome, SeedResult
from draftproof.harness.workers.messages import Answer
from draftproof.harness.workers.worker import Preloaded
from draftproof.properties.values.verdict import Outcome

FAULT = Task(id="a", folder="", hunks=("engine/x.py:1",), expected=Expectation())
TWIN = replace(FAULT, id=CLEAN, hunks=())
BATCH = Batch(
    seeds=(4, 5),
    examples=3,
    scenarios=((None,) * 3,) * 2,  # type: ignore[arg-type]  # nothing looks into them
    tasks=(FAULT, TWIN),
    device="cpu",
    parallel=1,
    deadline=9.0,
)


def result(*examples: int | None) -> TaskResult:
    seeds = (SeedResult(seed=0, outcome=FaultOutcome.DETECTED, examples=count) for count in examples)
    return TaskResult(id="a", seeds=tuple(seeds))


def ran(batch: Batch, beside: FaultsBeside, task: Task = TWIN) -> list[int]:
    """Return the numbers of the orders that a task gives, each of which passes."""
    running, numbers = work(task, batch, Preloaded({}, {}), beside), list[int]()
    order = next(running, None)
    while order is not None:
        numbers.append(order.number)
        try:
            order = running.send(Answer(number=order.number, outcome=Outcome.PASS))
        except StopIteration:
            order = None
    return numbers


@pytest.mark.parametrize(
    ("batch", "ended", "numbers"),
    [
        (BATCH, (result(2, 1),), [0, 1, 0]),
        (BATCH, (), [0, 1, 2, 0, 1, 2]),
        (BATCH, (result(1, None),), [0, 0, 1, 2]),
        (BATCH, (TaskResult(id="a", error="of our own"),), [0, 1, 2, 0, 1, 2]),
        (replace(BATCH, met=(3, 0)), (result(2, 1),), [0, 1, 2, 0]),
        (replace(BATCH, tasks=(TWIN,)), (), [0, 1, 2, 0, 1, 2]),
        (replace(BATCH, tasks=(FAULT, FAULT, TWIN)), (result(1, 1),), [0, 1, 2, 0, 1, 2]),
        (replace(BATCH, tasks=(FAULT, FAULT, TWIN)), (result(1, 1), result(2, 1)), [0, 1, 0]),
    ],
    ids=[
        "noticed",
        "runs still",
        "survived",
        "ended badly",
        "others met more",
        "alone",
        "one runs still",
        "both ended",
    ],
)
def test_a_clean_twin_runs_what_the_faults_beside_it_met(
    batch: Batch, ended: tuple[TaskResult, ...], numbers: list[int]
):
    beside = FaultsBeside(batch)
    for one in ended:
        beside.add(FAULT, one)
    assert ran(batch, beside) == numbers


def test_a_fault_meets_all_until_it_is_noticed():
    beside = FaultsBeside(BATCH)
    beside.add(FAULT, result(1, 1))
    assert ran(BATCH, beside, FAULT) == [0, 1, 2, 0, 1, 2]


def test_a_twin_of_other_kernels_is_not_cut_short():
    batch = replace(BATCH, tasks=(FAULT, replace(TWIN, ops=("kv_write",))))
    beside = FaultsBeside(batch)
    beside.add(FAULT, result(1, 1))
    assert beside.needed(("kv_write",), 0) == WHOLE_LIST


def test_most_met_is_of_each_seed_and_whole_where_nothing_was_noticed():
    assert most_met([], 2) == (0, 0)
    assert most_met([result(2, 1), result(1, 4)], 2) == (2, 4)
    assert most_met([result(2, None)], 2) == (2, WHOLE_LIST)
    assert most_met([result(2)], 2) == (WHOLE_LIST, WHOLE_LIST)


def test_tasks_that_meet_the_same_share_a_twin():
    """One twin with the kernels of all would run every call of each, one after another."""
    tasks = [replace(FAULT, id=name, ops=ops) for name, ops in (("a", ("x",)), ("b", ("x", "y")), ("c", ("x",)))]
    twins = twins_of(tasks, "clean")
    assert [(one.id, one.folder, one.ops) for one in twins] == [
        (f"{CLEAN} x", "clean", ("x",)),
        (f"{CLEAN} x y", "clean", ("x", "y")),
    ]
    assert all(is_twin(one.id) and one.hunks == () for one in twins)
