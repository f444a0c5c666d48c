"""A limit of time for what runs in this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TimeLimitError(BaseException):
    """The time is over. Not an Exception, so that nothing in between takes it for an error of its own."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeLimitError after `seconds`; None, or any thread but the main one: there is no limit."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(_signal: int, _frame: object) -> None:
        raise TimeLimitError

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
