"""Two ways to start the process of a worker: spawn a new interpreter, or fork this one with all that it has loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

MODULE = "draftproof.harness.workers.worker"


class Process(Protocol):
    """A started process, and the pipes that orders go into and answers come out of."""

    @property
    def pid(self) -> int: ...
    @property
    def orders(self) -> int: ...
    @property
    def answers(self) -> int: ...
    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        ...

    def wait(self) -> int:
        """Wait for its end; return the exit code."""
        ...


Start = Callable[[Path, int, IO[bytes], Mapping[str, str]], Process]
"""start(folder, index, log, environment)"""


class _Spawned:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self.pid = process, process.pid
        self.orders, self.answers = os.dup(process.stdin.fileno()), os.dup(process.stdout.fileno())
        process.stdin.close()
        process.stdout.close()

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self) -> int:
        return self._process.wait()


def spawn(folder: Path, index: int, log: IO[bytes], environment: Mapping[str, str]) -> Process:
    """Start a new interpreter, in a session of its own: a terminal's Ctrl-C is the parent's to handle."""
    return _Spawned(
        subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, str(folder), str(index)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
            close_fds=True,
            start_new_session=True,
            env=dict(environment),
        )
    )


@dataclass
class _Forked:
    pid: int
    orders: int
    answers: int
    _code: int | None = None

    def poll(self) -> int | None:
        return self._end(os.WNOHANG)

    def wait(self) -> int:
        code = self._end(0)
        assert code is not None
        return code

    def _end(self, options: int) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, options)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


def fork(serve: Callable[[Path, int], int]) -> Start:
    """Return a way to start workers that call `serve(folder, index)` in a copy of this process."""

    def start(folder: Path, index: int, log: IO[bytes], environment: Mapping[str, str]) -> Process:
        (orders_out, orders_in), (answers_out, answers_in) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid:
            os.close(orders_out)
            os.close(answers_in)
            return _Forked(pid, orders_in, answers_out)
        code = 1
        try:
            os.setsid()
            os.environ.update(environment)
            for number, stream in enumerate((orders_out, answers_in, log.fileno())):
                os.dup2(stream, number)
            for pipe in (orders_out, orders_in, answers_out, answers_in):
                os.close(pipe)
            code = serve(folder, index)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    return start
