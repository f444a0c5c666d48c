"""Two ways to start the process of a worker: spawn a new interpreter, or fork this one with all that it has loaded."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_MODULE = "draftproof.harness.workers.worker"


@dataclass
class Process:
    """A started process, and the pipes that orders go into and answers come out of."""

    pid: int
    orders: int
    answers: int
    _code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._end(os.WNOHANG)

    def wait(self) -> None:
        """Wait for its end."""
        self._end(0)

    def _end(self, options: int) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, options)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


Start = Callable[[Path, int, IO[bytes], Mapping[str, str]], Process]
"""start(folder, index, log, environment); the process has a session of its own: Ctrl-C is the parent's to handle."""


def spawning(module: str) -> Start:
    """Return a way to start workers in new interpreters that run a module."""

    def start(folder: Path, index: int, log: IO[bytes], environment: Mapping[str, str]) -> Process:
        orders, answers = os.pipe(), os.pipe()
        streams = enumerate((orders[0], answers[1], log.fileno()))
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", module, str(folder), str(index)],
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, stream, number) for number, stream in streams],
            setsid=True,
        )
        return _parent_side(pid, orders, answers)

    return start


spawn = spawning(_MODULE)
"""Start a new interpreter."""


def fork(serve: Callable[[Path, int], int]) -> Start:
    """Return a way to start workers that call `serve(folder, index)` in a copy of this process."""

    def start(folder: Path, index: int, log: IO[bytes], environment: Mapping[str, str]) -> Process:
        orders, answers = os.pipe(), os.pipe()
        pid = os.fork()
        if pid:
            return _parent_side(pid, orders, answers)
        code = 1
        try:
            os.setsid()
            os.environ.update(environment)
            for number, stream in enumerate((orders[0], answers[1], log.fileno())):
                os.dup2(stream, number)
            for pipe in (*orders, *answers):
                os.close(pipe)
            code = serve(folder, index)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    return start


def _parent_side(pid: int, orders: tuple[int, int], answers: tuple[int, int]) -> Process:
    os.close(orders[0])
    os.close(answers[1])
    return Process(pid, orders[1], answers[0])
