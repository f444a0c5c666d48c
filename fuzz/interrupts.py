"""What becomes of Ctrl-C and SIGTERM while something runs that must end in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


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
