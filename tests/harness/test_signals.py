"""An interrupt is one, however many signals it comes as."""

import os
import signal
from collections.abc import Iterator

import pytest

from draftproof.harness import signals
from draftproof.harness.signals import interrupted_once


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
