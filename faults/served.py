"""A fork server as its callers see it: what it imports, it imports once for all of their batches."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Self

import msgspec

from draftproof.faults.orders import Batch, TaskResult

Serve = Callable[[Batch], Iterator[TaskResult]]
_COMMAND = (sys.executable, "-P", "-m", "draftproof.faults.fork_server")
"""-P: the current folder may be the repository, whose kernels/ must not stand in for another package."""


class ForkServer:
    """Starts at the first batch, and ends, with all that it forked, before the block that it manages does."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self._control, self._theirs = socket.socketpair()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        # Not only closed: a process that was forked of this one may have it, too.
        self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        self._theirs.close()
        if self._process is not None:
            self._process.wait()

    def start(self) -> None:
        """Start it now, so that it imports while its first batch is made; once, whichever thread asks first."""
        with self._starting:
            if self._process is None:
                environment = {**os.environ, "OMP_NUM_THREADS": "1"}
                # Ctrl-C at a terminal and `timeout` signal a whole group: workers that die of it are no finding.
                self._process = subprocess.Popen(
                    _COMMAND, stdin=self._theirs.fileno(), env=environment, start_new_session=True
                )
                self._theirs.close()

    def run(self, batch: Batch) -> Iterator[TaskResult]:
        """Yield results as tasks end; from several threads, too. Raises RuntimeError for errors of our own."""
        self.start()
        ours, theirs = socket.socketpair()
        with ours, ours.makefile("rb") as results:
            with theirs:
                socket.send_fds(self._control, [b"\n"], [theirs.fileno()])
            ours.sendall(msgspec.json.encode(batch) + b"\n")
            seen = 0
            for line in results:
                result = msgspec.json.decode(line, type=TaskResult)
                if result.error:
                    raise RuntimeError(f"{result.id}: {result.error}")
                seen += 1
                yield result
        if seen != len(batch.tasks):
            raise RuntimeError(f"the fork server ended after {seen} of {len(batch.tasks)} tasks")
