"""Verdicts on kernels from worker processes: a call that raises, dies or hangs costs the verdict of its op alone."""

import ctypes
import os
import sys
import time
from collections.abc import Callable

import pytest
import torch

from draftproof import kernels
from draftproof.harness import kernel_check, kernel_runs
from draftproof.harness.kernel_check import kernel_verdicts
from draftproof.harness.kernel_runs import KernelHangError, diverges, kernel_calls
from draftproof.op import cases
from draftproof.properties.values.verdict import Outcome

SEED = 0
CALLS = kernel_calls(["kernel.rms_norm", "kernel.greedy_accept", "kernel.assign_slots"], SEED, 3)


def _sleeps() -> None:
    time.sleep(60)


def _hangs_in_c() -> None:
    """Wait for oneself with the interpreter's lock: no signal is handled, as where a kernel never returns."""
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)


def _raises() -> None:
    raise RuntimeError("no kernel image\nis available")


def _leaves() -> None:
    sys.exit("enough")


def _dies() -> None:
    os.abort()


@pytest.mark.parametrize(
    ("end", "outcome", "reason"),
    [
        (_sleeps, Outcome.HANG, "deadline after "),
        (_hangs_in_c, Outcome.HANG, "deadline after "),
        (_raises, Outcome.CRASH, "greedy_accept: RuntimeError: no kernel image"),
        (_leaves, Outcome.CRASH, "greedy_accept: SystemExit: enough"),
        (_dies, Outcome.CRASH, "SIGABRT after "),
    ],
)
def test_how_a_call_ends_is_told_of_its_op_alone(
    end: Callable[[], None], outcome: Outcome, reason: str, monkeypatch: pytest.MonkeyPatch
):
    own, count = kernels.greedy_accept, 0

    def second(*given: torch.Tensor) -> None:
        nonlocal count
        count += 1
        if count == 2:
            end()
        own(*given)

    monkeypatch.setattr(kernel_check, "CALL_DEADLINE", 3.0)
    monkeypatch.setattr(kernels, "greedy_accept", second)
    # One worker has all calls.
    monkeypatch.setattr(kernel_check, "_ON_A_CPU", 1)
    before, told, behind = kernel_verdicts(CALLS, SEED, "cpu")
    assert (told.name, told.verdict) == ("kernel.greedy_accept", outcome)
    assert told.reason.startswith(f"call 2 of 3: {reason}")
    assert "\n" not in told.reason
    assert (before.name, behind.name) == ("kernel.rms_norm", "kernel.assign_slots")
    assert {before.verdict, behind.verdict} == {Outcome.INCONCLUSIVE}, "three calls are too few"


def test_several_processes_say_what_one_says(monkeypatch: pytest.MonkeyPatch):
    several = list(kernel_verdicts(CALLS, SEED, "cpu"))
    monkeypatch.setattr(kernel_check, "_ON_A_CPU", 1)
    assert several == list(kernel_verdicts(CALLS, SEED, "cpu"))


def test_a_call_of_ones_own_kernel_that_hangs_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel_runs, "CALL_DEADLINE", 0.2)
    with pytest.raises(KernelHangError, match=r"a call of rms_norm took longer than 0\.2 s"):
        diverges("rms_norm", cases("rms_norm", SEED, 1)[0], "cpu", lambda _op: lambda *_: _sleeps())
