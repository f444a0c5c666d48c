"""What becomes of Ctrl-C and SIGTERM while a campaign runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interruptible(ask: Callable[[], bool]) -> Iterator[None]:
    """Tell `ask` of each; if it says that it had been asked before, Ctrl-C is KeyboardInterrupt again.

    Outside of the main thread nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(number: int, _frame: object) -> None:
        if ask() and number == signal.SIGINT:
            raise KeyboardInterrupt

    # A script's background job has SIGINT ignored, so that Ctrl-C at the terminal does not reach it: that stays.
    heard = [one for one in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, asked) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
