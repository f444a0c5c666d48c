"""Handle signals while something runs, an end in order at Ctrl-C and SIGTERM, and a limit of time; and os._exit."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_TOGETHER = 2.0
"""Seconds within which two signals are one interrupt."""
_SOON = 0.001


class TimeLimitError(BaseException):
    """The time is over. Not an Exception, so that nothing in between takes it for an error of its own."""


@contextmanager
def handled(handler: Callable[[int, FrameType | None], object], *numbers: signal.Signals) -> Iterator[None]:
    """Let a function handle these signals meanwhile. Outside of the main thread nothing is changed."""
    is_main = threading.current_thread() is threading.main_thread()
    # A script's background job has SIGINT ignored, so that Ctrl-C at the terminal does not reach it: that stays.
    heard = [one for one in numbers if is_main and signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Raise KeyboardInterrupt at Ctrl-C and SIGTERM, once for those that come together.

    `timeout` signals a process and then its group, and an impatient user presses twice: what the first one began to
    print is printed.
    """
    last = float("-inf")

    def interrupt(_signal: int, _frame: object) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before > _TOGETHER:
            raise KeyboardInterrupt

    with handled(interrupt, signal.SIGINT, signal.SIGTERM):
        yield


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeLimitError after `seconds`; None, or any thread but the main one: there is no limit.

    Where Python ignores what is raised, as in callbacks of the garbage collector, it is raised once more behind that.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(_signal: int, _frame: object) -> None:
        raise TimeLimitError

    ignored_before = sys.unraisablehook

    def ignored(what: sys.UnraisableHookArgs) -> None:
        if isinstance(what.exc_value, TimeLimitError):
            signal.setitimer(signal.ITIMER_REAL, _SOON)
        else:
            ignored_before(what)

    with handled(expire, signal.SIGALRM):
        sys.unraisablehook = ignored
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.unraisablehook = ignored_before


@contextmanager
def exits_noticed() -> Iterator[None]:
    """Raise SystemExit where os._exit is called meanwhile, and once more at the end if someone caught it.

    A process that is forked meanwhile may exit.
    """
    exit_now, process, codes = os._exit, os.getpid(), list[int]()

    def notice(status: int) -> NoReturn:
        if os.getpid() != process:
            exit_now(status)
        codes.append(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = notice
    try:
        yield
    finally:
        os._exit = exit_now
    for status in codes:
        raise SystemExit(f"os._exit({status}), and went on")
