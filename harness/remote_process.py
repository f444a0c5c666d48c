"""The process of a subject in another Python: how it is started, spoken to, and ended with all that it started."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from draftproof.harness.process_tree import kill_tree
from draftproof.properties.lib.errors import DraftproofError
from draftproof.subjects.remote import bootstrap
from draftproof.subjects.remote.messages import (
    LENGTH,
    AnySubjectAnswer,
    AnySubjectOrder,
    answer_of,
    frame,
)

_ROOMS = ("engine", "kernels", "properties", "subjects")
"""What may be imported there, beside the names of the package itself."""
TAIL = 16_000
"""Characters of what it printed that are kept."""
_LONGEST_LOG, _LONGEST_FRAME = 4 << 20, 1 << 34
_TICK, _DUMP_SECONDS = 0.1, 1.0


class SubjectEndedError(DraftproofError):
    """The process ended, or said what is no message; `how` is "SIGSEGV", "exit 70" or "garbled answer"."""

    def __init__(self, how: str) -> None:
        self.how = how
        super().__init__(f"the process of the subject ended ({how})")


class SilentSubjectError(DraftproofError):
    """The process did not answer in time."""


class SubjectLog:
    """What the process prints: a file that it appends to, a worker's own or one without a name.

    It is `shown` on stderr after each order, if that is asked for.
    """

    def __init__(self, path: Path | None, *, shown: bool = False) -> None:
        if path is None:
            number, name = tempfile.mkstemp(prefix="draftproof-")
            os.close(number)
            self.file, self._reader = open(name, "ab"), open(name, "rb")  # noqa: SIM115  # for the life of the process
            os.unlink(name)
        else:
            self.file, self._reader = path.open("ab"), path.open("rb")
        self._start = self._told = 0
        self._is_shown = shown

    def show(self) -> None:
        """Print on stderr what was printed since the last time, if it is shown."""
        if self._is_shown and self.size > self._told:
            new = os.pread(self._reader.fileno(), self.size - self._told, self._told)
            print(new.decode(errors="replace"), end="", file=sys.stderr, flush=True)
        self._told = self.size

    def close(self) -> None:
        """Close the file; one without a name is gone then."""
        self.file.close()
        self._reader.close()

    def mark(self) -> None:
        """Let `tail` begin here."""
        if self.size > _LONGEST_LOG:
            os.ftruncate(self.file.fileno(), 0)
        self._start = self.size

    @property
    def size(self) -> int:
        return os.fstat(self._reader.fileno()).st_size

    def tail(self) -> str:
        """Return the end of what was printed since the mark."""
        start = self._start if self._start <= self.size else 0
        begin = max(start, self.size - TAIL)
        return os.pread(self._reader.fileno(), self.size - begin, begin).decode(errors="replace").strip()


class SubjectProcess:
    """A started process. Raises OSError if there is nothing to start."""

    def __init__(self, python: str, search: str, log: SubjectLog) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        # Engines start processes of their own, which must not find modules in whatever folder we run in.
        environment["PYTHONSAFEPATH"] = "1"
        if search:
            environment["PYTHONPATH"] = search
        self._log, self._buffer = log, b""
        self._process = subprocess.Popen(
            [python, bootstrap.__file__, json.dumps(sources())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.file,
            env=environment,
            bufsize=0,
            start_new_session=True,
        )

    def send(self, order: AnySubjectOrder) -> None:
        """Send an order; if the process has ended, reading the answer tells."""
        assert self._process.stdin is not None
        data = memoryview(frame(order))
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._process.stdin.fileno(), data) :]

    def receive(self, seconds: float | None = None) -> AnySubjectAnswer:
        """Return the next answer. Raises SubjectEndedError, and SilentSubjectError after `seconds` seconds."""
        data = self.receive_frame(seconds)
        try:
            return answer_of(data)
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError):
            raise SubjectEndedError("garbled answer") from None

    def receive_frame(self, seconds: float | None = None) -> bytes:
        """Return the next frame as it is. Raises as `receive`."""
        end = None if seconds is None else time.monotonic() + seconds
        while (data := self._whole()) is None:
            if end is not None and time.monotonic() > end:
                raise SilentSubjectError(f"the process of the subject did not answer within {seconds:g} s")
            self._read()
        return data

    def _whole(self) -> bytes | None:
        if len(self._buffer) < LENGTH.size:
            return None
        after = LENGTH.size + LENGTH.unpack(self._buffer[: LENGTH.size])[0]
        if after > _LONGEST_FRAME:
            raise SubjectEndedError("garbled answer")
        if len(self._buffer) < after:
            return None
        data, self._buffer = self._buffer[LENGTH.size : after], self._buffer[after:]
        return data

    def _read(self) -> None:
        """Wait a moment for more. What it started may hold its end of the pipe open: its own end is looked for."""
        assert self._process.stdout is not None
        source = self._process.stdout.fileno()
        ended = self._process.poll() is not None
        if select.select([source], [], [], 0 if ended else _TICK)[0] and (data := os.read(source, 1 << 20)):
            self._buffer += data
        elif ended:
            code = self._process.returncode
            raise SubjectEndedError(signal.Signals(-code).name if code < 0 else f"exit {code}")

    def stacks(self) -> str:
        """Have the stacks of its threads printed; return the end of what it printed, with them."""
        before = self._log.size
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGUSR1)
        end = time.monotonic() + _DUMP_SECONDS
        while self._log.size == before and time.monotonic() < end:
            time.sleep(_TICK / 2)
        return self._log.tail()

    def kill(self) -> None:
        """End it and all that it started, and reap it."""
        kill_tree(self._process.pid)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def sources() -> dict[str, str]:
    """Return package -> folder of what may be imported in the other Python, wherever it is installed here."""
    names = ("draftproof", *(f"draftproof.{room}" for room in _ROOMS))
    folders = {}
    for name in names:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        folders[name] = str(Path(spec.origin).resolve().parent)
    return folders


def interpreter(python: str) -> str:
    """Return the path of an interpreter as it can be started; links are kept, as environments are made of them.

    Raises FileNotFoundError with what was expected.
    """
    expanded = os.path.expanduser(python)
    if os.sep not in expanded:
        found = shutil.which(expanded)
        if found is None:
            raise FileNotFoundError("expected a Python interpreter, and there is none of this name on PATH")
        return found
    path = Path(expanded).absolute()
    if (path / "bin" / "python").exists():
        raise FileNotFoundError(
            f"expected a Python interpreter, not a folder; did you mean {python.rstrip('/')}/bin/python?"
        )
    if not path.is_file():
        raise FileNotFoundError("expected a Python interpreter, and there is no such file")
    return str(path)
