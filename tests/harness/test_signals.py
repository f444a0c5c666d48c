"""An interrupt is one, however many signals it comes as; a limit of time holds, wherever its signal comes."""

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from draftproof.harness import signals
from draftproof.harness.signals import TimeLimitError, interrupted_once, time_limit


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A shell that starts the tests in the background may have them ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_that_come_together_are_one_interrupt(number: signal.Signals) -> None:
    with interrupted_once():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGINT)


def test_a_later_signal_interrupts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with interrupted_once():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        monkeypatch.setattr(signals, "_TOGETHER", -1.0)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


class Ending:
    """The time is over while it is deleted, where Python ignores whatever is raised."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGALRM)


def over_in_a_deletion() -> None:
    Ending()


def over_in_the_collector() -> None:
    """A collection takes long on a busy machine, and what it calls at its end is the first to hear of a signal."""

    def callback(phase: str, _info: object) -> None:
        if phase == "stop":
            gc.callbacks.remove(callback)
            signal.raise_signal(signal.SIGALRM)

    gc.callbacks.append(callback)
    gc.collect()


def over_within(end: Callable[[], None]) -> None:
    """Let the time be over, and wait for what comes of it; no limit that is kept takes as long."""
    with time_limit(600):
        end()
        time.sleep(5)


@pytest.mark.parametrize("where", ["deletion", "collector"])
def test_a_limit_holds_where_an_error_is_ignored(where: str) -> None:
    hook = sys.unraisablehook
    with pytest.raises(TimeLimitError):
        over_within(over_in_a_deletion if where == "deletion" else over_in_the_collector)
    assert sys.unraisablehook is hook


def test_what_else_is_ignored_is_told_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    class Broken:
        def __del__(self) -> None:
            raise ValueError("of its own")

    with time_limit(600):
        Broken()
    assert len(told) == 1
