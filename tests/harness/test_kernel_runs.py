"""Verdicts on kernels from several processes: those of one process, and CRASH where a process ends."""

import os

import pytest

from draftproof.harness import kernel_runs
from draftproof.harness.kernel_runs import kernel_calls, kernel_verdicts
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.values.verdict import Outcome, Verdict

JUDGE = kernel_runs.kernel_verdict
CALLS = kernel_calls(["kernel.greedy_accept", "kernel.assign_slots"], 0, 3)


def ends(op: str, of_op: tuple[KernelCase, ...], device: str) -> Verdict:
    os._exit(3)


def test_several_processes_say_what_one_says(monkeypatch: pytest.MonkeyPatch):
    # Tests of commands, in the same process, remember verdicts.
    monkeypatch.setattr(kernel_runs, "kernel_verdict", JUDGE)
    assert list(kernel_verdicts(CALLS, "cpu", 2)) == list(kernel_verdicts(CALLS, "cpu", 1))


def test_a_process_that_ends_is_a_crash_of_each_op_that_it_left(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel_runs, "kernel_verdict", ends)
    told = list(kernel_verdicts(CALLS, "cpu", 2))
    assert [one.verdict for one in told] == [Outcome.CRASH] * len(CALLS)
    assert [one.name for one in told] == [f"kernel.{op}" for op in CALLS]
    assert all("ended" in one.reason for one in told)


def test_a_kernel_that_ends_the_program_is_a_crash_of_its_op(monkeypatch: pytest.MonkeyPatch):
    def leaves(*_: object) -> None:
        raise SystemExit("enough")

    monkeypatch.setattr(kernel_runs, "diverges", leaves)
    told = JUDGE("greedy_accept", CALLS["greedy_accept"], "cpu")
    assert (told.verdict, told.reason) == (Outcome.CRASH, "SystemExit: enough")
