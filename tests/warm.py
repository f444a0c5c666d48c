"""Processes that are forked from an interpreter which has imported others' packages, in place of new interpreters.

A new one takes three seconds of a core for torch and Hypothesis. What is forked gets the arguments, environment, folder
and streams that it would have been started with, imports what is ours itself, and is a child of whoever asked. Tests of
a start (what is imported, paths, options of the interpreter, signals, ends) begin a new interpreter.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

PRELOADED = ("hypothesis.strategies", "jinja2", "msgspec", "numpy", "psutil", "rich.table", "torch", "typer")
_SET_CHILD_SUBREAPER = 36
spawn = os.posix_spawn


class Started:
    """A forked process with two pipes: as much of a `subprocess.Popen` as is asked of one that is spoken to."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None

    def poll(self, options: int = os.WNOHANG) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self) -> int | None:
        return self.poll(0)


class Warm:
    """The interpreter; it starts when it is first asked, and ends with the block that it manages."""

    def __init__(self) -> None:
        self._lock, self._pid = threading.Lock(), 0

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pid:
            self._control.close()
            os.waitpid(self._pid, 0)

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], folder: str, streams: Sequence[int], session: bool
    ) -> int:
        """Fork a process that runs `python [-P] ..`, and return its number."""
        assert command[0] == sys.executable
        asked = [command[1:], dict(environment), folder, session]
        with self._lock:
            if not self._pid:
                self._begin()
            # While it is asked, this process takes in what loses its parent.
            ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(self._control, [json.dumps(asked).encode()], streams)
                return int(self._control.recv(32))
            finally:
                ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 0)

    def posix_spawn(self, path: str, command: Sequence[str], environment: Mapping[str, str], **how: Any) -> int:
        """Stand in for `os.posix_spawn`: what is not a worker of ours is spawned."""
        if list(command[1:3]) != ["-P", "-m"] or not command[3].startswith("draftproof.harness.workers."):
            return spawn(path, command, environment, **how)
        streams = {number: stream for _, stream, number in how["file_actions"]}
        return self.start(command, environment, os.getcwd(), [streams[number] for number in range(3)], how["setsid"])

    def popen(
        self, command: Sequence[str], *, env: Mapping[str, str], stderr: IO[bytes], start_new_session: bool, **_: object
    ) -> Started:
        """Stand in for `subprocess.Popen` with two pipes."""
        (theirs_in, ours_in), (ours_out, theirs_out) = os.pipe(), os.pipe()
        pid = self.start(command, env, os.getcwd(), [theirs_in, theirs_out, stderr.fileno()], start_new_session)
        os.close(theirs_in)
        os.close(theirs_out)
        return Started(pid, open(ours_in, "wb", buffering=0), open(ours_out, "rb", buffering=0))

    def run(
        self, command: Sequence[str], folder: Path | None = None, timeout: float = 300, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with what is added to the environment, as `subprocess.run` with its output."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, open(os.devnull) as nothing:
            streams = [file.fileno() for file in (nothing, out, err)]
            pid = self.start(command, {**os.environ, **more}, str(folder or Path.cwd()), streams, session=False)
            with open(os.pidfd_open(pid)) as end:
                is_late = not select.select([end], [], [], timeout)[0]
            if is_late:
                os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            said = [file.seek(0) or file.read() for file in (out, err)]
        if is_late:
            raise subprocess.TimeoutExpired(list(command), timeout, *said)
        return subprocess.CompletedProcess(list(command), code, *said)

    def _begin(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        streams = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        self._pid = spawn(sys.executable, [sys.executable, "-P", __file__], os.environ, file_actions=streams)
        theirs.close()


def serve(control: socket.socket) -> None:
    """Fork whatever is asked for until nobody can ask any more."""
    for name in PRELOADED:
        importlib.import_module(name)
    assert not {"draftproof", "triton"} & set(sys.modules)
    # Packages may lie on PYTHONPATH alone; what is forked looks where its own environment says.
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [path for path in sys.path if path not in own]
    gc.freeze()
    while True:
        message, streams, *_ = socket.recv_fds(control, 1 << 20, 3)
        if not message:
            return
        if pid := os.fork():
            os.waitpid(pid, 0)
            for stream in streams:
                os.close(stream)
            continue
        parent = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == parent:
            time.sleep(0.001)
        control.send(str(os.getpid()).encode())
        _become(*json.loads(message), streams)


def _become(command: list[str], environment: dict[str, str], folder: str, session: bool, streams: list[int]) -> None:
    code = 1
    try:
        if session:
            os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        _execute(*command)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _execute(kind: str, *given: str) -> None:
    """Run `[-P] -m MODULE ..`, `[-P] -c CODE ..` or `[-P] FILE ..`."""
    arguments = list(given)
    if kind == "-P":
        kind, *arguments = arguments
    else:
        sys.path.insert(0, "" if kind.startswith("-") else str(Path(kind).parent))
    if kind not in ("-m", "-c"):
        sys.argv = [kind, *arguments]
        runpy.run_path(kind, run_name="__main__")
        return
    what, *rest = arguments
    sys.argv = [kind, *rest]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
        return
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    exec(what, vars(main))


if __name__ == "__main__":
    serve(socket.socket(fileno=os.dup(0)))
