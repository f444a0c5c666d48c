"""A command in a process of its own: only what it says at its end is its exit code, whatever a subject does."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

CRASHED = 3
"""The exit code of a command whose process ended before its verdict, as of Outcome.CRASH."""
INTERRUPTED = 2
"""The exit code of a command that was stopped before its verdict, as for any error of usage."""
_MOMENT = 0.05
_ANOTHER = 2.5
"""Seconds after which a signal counts as another interrupt, also where signals that come together count as one."""


def leave(code: int) -> NoReturn:
    """End this process now: no handler of atexit can change its exit code."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def run_apart(command: Callable[[], int]) -> int:
    """Run a command in a forked process; return its exit code, or CRASHED if it ended without saying one.

    Where a signal ended it that came to this process, it is INTERRUPTED.

    Call it before anything is imported that keeps threads or a device. Ctrl-C and SIGTERM are the command's to handle.
    """
    verdicts, verdict = os.pipe()
    # One that comes while there is nobody to pass it on to, or to handle it, waits.
    held = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    pid = os.fork()
    if not pid:
        os.close(verdicts)
        signal.signal(signal.SIGINT, _interrupt_once)
        sys.unraisablehook = _interrupt_again
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        code = command()
        os.write(verdict, bytes([code]))
        leave(code)
    os.close(verdict)
    came = set[int]()
    before = {number: signal.signal(number, _passed_on(pid, came)) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for number, handler in before.items():
        signal.signal(number, handler)
    # Not until its end: what the subject started may hold the pipe open for longer.
    os.set_blocking(verdicts, False)
    told = b""
    with contextlib.suppress(BlockingIOError):
        told = os.read(verdicts, 1)
    os.close(verdicts)
    if told:
        return told[0]
    how = signal.Signals(-status).name if status < 0 else f"exit {status}"
    if -status in came:
        print(f"error: interrupted by {how} before there was a verdict", file=sys.stderr)
        return INTERRUPTED
    print(f"CRASH: the process of the command ended ({how}) before there was a verdict", file=sys.stderr)
    return CRASHED


def _interrupt_once(_number: int, _frame: FrameType | None) -> NoReturn:
    """Ctrl-C at a terminal comes twice: from there, and from the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _interrupt_again(ignored: sys.UnraisableHookArgs) -> None:
    """Interrupt once more where Python discarded an interrupt, as it does in callbacks of its garbage collector."""
    if ignored.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(ignored)
        return
    is_ours = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if is_ours:
        signal.signal(signal.SIGINT, _interrupt_once)
    # Raised from here it would be discarded, too.
    again = threading.Timer(_MOMENT if is_ours else _ANOTHER, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()


def _passed_on(pid: int, came: set[int]) -> Callable[[int, FrameType | None], None]:
    def pass_on(number: int, _frame: FrameType | None) -> None:
        came.add(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    return pass_on
