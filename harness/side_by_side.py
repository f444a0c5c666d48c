"""Work on a list in forked processes, which share its items, and return everything in the order of the list."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from draftproof.harness.collector import tune_gc
from draftproof.harness.ranks.messages import RANKS_IN
from draftproof.subjects.process import die_with_parent

Item = TypeVar("Item")
Result = TypeVar("Result")


class SideBySide(Generic[Item, Result]):
    """Calls `work` with number and item in `processes`: each takes its own first item, and then the next that is left.

    Iterate over the results. A process that ends early, as a subject may make it, ends this one in the same way; what
    `work` raises is raised.
    """

    def __init__(self, work: Callable[[int, Item], Result], items: Sequence[Item], processes: int = 1) -> None:
        self._work, self._items = work, items
        self._processes = max(1, min(processes, len(items)))

    def __iter__(self) -> Iterator[Result]:
        """Yield the result of every item."""
        if self._processes == 1:
            for number, item in enumerate(self._items):
                yield self._work(number, item)
            return
        context = multiprocessing.get_context("fork")
        taken = context.Value("i", self._processes)
        with _folder_of_ranks():
            started = dict(self._fork(context, place, taken) for place in range(self._processes))
            early = dict[int, Result]()
            try:
                for number in range(len(self._items)):
                    while number not in early:
                        ready = wait(list(started))
                        for pipe in (pipe for pipe in started if pipe in ready):
                            at, result = _next(started[pipe], pipe)
                            early[at] = result
                    yield early.pop(number)
            finally:
                for process in started.values():
                    process.terminate()
                    process.join()

    def _fork(self, context: Any, place: int, taken: Any) -> tuple[Connection, Any]:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=self._serve, args=(place, taken, theirs, os.getpid()), daemon=True)
        process.start()
        theirs.close()
        return ours, process

    def _serve(self, number: int, taken: Any, pipe: Connection, parent: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Its siblings hold ends of its pipe: without this it would not learn that the parent is gone.
        die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        tune_gc()  # what came with the fork stays
        try:
            while number < len(self._items):
                pipe.send((number, self._work(number, self._items[number])))
                with taken:
                    number, taken.value = taken.value, taken.value + 1
        except Exception as error:
            # A traceback stays behind where an exception goes to another process.
            error.add_note("".join(traceback.format_tb(error.__traceback__)))
            pipe.send((number, _Raised(error)))
        except KeyboardInterrupt:
            os._exit(1)  # the waiting process was interrupted as well
        signal.pause()  # the waiting process ends it


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


def _next(process: Any, pipe: Connection) -> tuple[int, Any]:
    try:
        number, value = pipe.recv()
    except EOFError:
        process.join()
        if process.exitcode < 0:
            os.kill(os.getpid(), -process.exitcode)
        os._exit(process.exitcode)
    if isinstance(value, _Raised):
        raise value.error
    return number, value
