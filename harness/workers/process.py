"""One worker as its parent sees it: a process, its two pipes, its log and its journal."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from draftproof.harness.process_tree import kill_tree, memory_of, print_stacks
from draftproof.harness.ranks.messages import RANKS_IN
from draftproof.harness.workers.journal import JournalEntry, read
from draftproof.harness.workers.start import Start, spawn
from draftproof.properties.lib.base import Value

LONGEST_TAIL = 16_000
"""Characters of a log that are kept in an answer."""
_DUMP_SECONDS, _DUMP_STEP = 2.0, 0.05


class WorkerProcess:
    """A worker. Starts when it is made; raises OSError if it cannot be."""

    def __init__(
        self, spec: Value, folder: Path, index: int, environment: Mapping[str, str], start: Start = spawn
    ) -> None:
        self._journal, self._log = folder / f"{index}.journal", folder / f"{index}.log"
        self._journal.unlink(missing_ok=True)
        self._ranks = folder.resolve() / f"{index}.ranks"
        self._ranks.mkdir(exist_ok=True)
        with self._log.open("ab") as log:
            self._process = start(folder, index, log, {**environment, RANKS_IN: str(self._ranks)})
            self._log_start = log.tell()
        self._kernels = folder / f"{index}.kernels"
        os.set_blocking(self._process.answers, False)
        self._buffer, self._is_over = b"", False
        self.send(spec)

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """Where answers come from."""
        return self._process.answers

    def send(self, message: Value) -> None:
        """Tell the worker, unless it has ended. What it does in answer to this is logged from here on."""
        data = msgspec.json.encode(message) + b"\n"
        self._log_start = self._size()
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._process.orders, data) :]

    def receive(self) -> list[bytes]:
        """Return the whole lines that have come."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._process.answers, 1 << 20):
                self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        return lines

    @property
    def answering(self) -> bool:
        """True if a part of a line has come."""
        return bool(self._buffer)

    @property
    def ended(self) -> str:
        """How the process ended, as "SIGSEGV" or "exit 70"; "" while it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        return signal.Signals(-code).name if code < 0 else f"exit {code}"

    @property
    def rss(self) -> int:
        """Bytes of memory it and what it started hold; 0 if it is gone."""
        return memory_of(self.pid)

    @property
    def entry(self) -> JournalEntry | None:
        """What the journal says is in hand."""
        return read(self._journal)

    def kernels(self) -> tuple[str, ...]:
        """Return the kernels that were called in the last order that asks for them, sorted."""
        try:
            return tuple(sorted(self._kernels.read_text(encoding="utf-8").split()))
        except FileNotFoundError:
            return ()

    def log(self) -> str:
        """Return the end of what was logged since the last message to the worker; a log that was cut is new."""
        if not (size := self._size()):
            return ""
        start = self._log_start if self._log_start <= size else 0
        with self._log.open("rb") as log:
            log.seek(max(start, size - LONGEST_TAIL))
            return log.read().decode(errors="replace").strip()

    def _size(self) -> int:
        """Return the size of the log, 0 if someone took it away."""
        return self._log.stat().st_size if self._log.exists() else 0

    def dump(self) -> None:
        """Have the stacks of all threads written to the log; waits until they are there, a moment at most."""
        before = self._size()
        print_stacks(self.pid)
        end = time.monotonic() + _DUMP_SECONDS
        while time.monotonic() < end:
            time.sleep(_DUMP_STEP)
            size = self._size()
            if size == before and size > self._log_start and self.log():
                return
            before = size

    def kill(self) -> None:
        """End it and what it started, and reap it."""
        if self._is_over:
            return
        self._is_over = True
        kill_tree(self.pid)
        self._process.wait()
        os.close(self._process.orders)
        os.close(self._process.answers)
        shutil.rmtree(self._ranks, ignore_errors=True)


def environments(device: str, count: int) -> list[dict[str, str]]:
    """Return each worker's environment: it can import what the parent can, and several GPUs are shared out evenly."""
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path)
    common = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    gpus = visible_gpus() if device == "cuda" else []
    if len(gpus) < 2:
        return [common] * count
    return [{**common, "CUDA_VISIBLE_DEVICES": gpus[index % len(gpus)]} for index in range(count)]


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them, without taking hold of any."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [part.strip() for part in visible.split(",") if part.strip()]
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    listed = subprocess.run([tool, "--list-gpus"], capture_output=True, text=True, check=False, timeout=60)
    devices = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    return [str(number) for number in range(len(devices))]
