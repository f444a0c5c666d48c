"""Work on a list in forked processes, each with its share of the items, and everything in the order of the list."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from draftproof.harness.collector import tune_gc
from draftproof.harness.ranks.messages import RANKS_IN
from draftproof.subjects.process import die_with_parent

Item = TypeVar("Item")
Result = TypeVar("Result")
State = TypeVar("State")


class SideBySide(Generic[Item, Result, State]):
    """Calls `work` with number and item in each of `processes`; a process has every n-th item.

    Iterate over the results, then ask for `states`: what `state` returns in each process at its end. One of them is
    this process. A process that ends early, as a subject may make it, ends this one in the same way; what `work` raises
    is raised.
    """

    def __init__(
        self,
        work: Callable[[int, Item], Result],
        items: Sequence[Item],
        state: Callable[[], State],
        processes: int = 1,
    ) -> None:
        self._work, self._items, self._state, self._processes = work, items, state, processes
        self.states: list[State] = []

    def __iter__(self) -> Iterator[Result]:
        """Yield the result of every item."""
        if self._processes == 1:
            for number, item in enumerate(self._items):
                yield self._work(number, item)
            self.states = [self._state()]
            return
        with _folder_of_ranks():
            started = [self._fork(place) for place in range(self._processes)]
            try:
                for number in range(len(self._items)):
                    yield _next(*started[number % self._processes])
                self.states = [_next(*one) for one in started]
            finally:
                for process, _ in started:
                    process.terminate()
                    process.join()

    def _fork(self, place: int) -> tuple[Any, Connection]:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=self._serve, args=(place, theirs, os.getpid()), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def _serve(self, place: int, pipe: Connection, parent: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Its siblings hold ends of its pipe: without this it would not learn that the parent is gone.
        die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        tune_gc()  # what came with the fork stays
        try:
            for number in range(place, len(self._items), self._processes):
                pipe.send(self._work(number, self._items[number]))
            pipe.send(self._state())
        except Exception as error:
            pipe.send(_Raised(error))
        except KeyboardInterrupt:
            os._exit(1)  # the waiting process was interrupted as well


@contextmanager
def _folder_of_ranks() -> Iterator[None]:
    """Have forked processes, which are ended before they can clean up, keep what their ranks need in one folder."""
    before = os.environ.get(RANKS_IN)
    with tempfile.TemporaryDirectory(prefix="draftproof-ranks-", dir=before, ignore_cleanup_errors=True) as folder:
        os.environ[RANKS_IN] = folder
        try:
            yield
        finally:
            os.environ.pop(RANKS_IN)
            if before is not None:
                os.environ[RANKS_IN] = before


class _Raised:
    """What `work` raised in a process."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _next(process: Any, pipe: Connection) -> Any:
    try:
        value = pipe.recv()
    except EOFError:
        process.join()
        if process.exitcode < 0:
            os.kill(os.getpid(), -process.exitcode)
        os._exit(process.exitcode)
    if isinstance(value, _Raised):
        raise value.error
    return value
