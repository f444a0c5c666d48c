"""One fork server runs batch after batch, and what a batch does to its process is no other's affair."""

import threading

import psutil
import pytest

from draftproof.faults.orders import Batch, Task
from draftproof.faults.served import ForkServer
from draftproof.faults.trial import Expectation


def batch(op: str) -> Batch:
    task = Task(id="one", folder="/nowhere", hunks=(), expected=Expectation(), ops=(op,))
    return Batch(seeds=(0,), examples=1, scenarios=((),), tasks=(task,), device="cpu", parallel=1, deadline=60.0)


def test_a_batch_that_fails_is_told_and_the_next_one_runs(server: ForkServer, capfd: pytest.CaptureFixture[str]):
    with pytest.raises(RuntimeError, match="the fork server ended after 0 of 1 tasks"):
        list(server.run(batch("no_such_kernel")))
    (result,) = server.run(batch("kv_write"))
    assert (result.id, [one.seed for one in result.seeds]) == ("one", [0])


def test_it_starts_once_and_ends_with_its_block():
    """Whichever of several threads has the first batch."""
    before = set(psutil.Process().children())
    with ForkServer() as server:
        together = threading.Barrier(4)
        threads = [threading.Thread(target=lambda: (together.wait(), server.start())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (process,) = set(psutil.Process().children()) - before
    assert not process.is_running()
