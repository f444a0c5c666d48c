"""Calls of kernels are drawn, and judged, once for all commands: they are a function of their op, seed and count."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from draftproof.harness import kernel_check, kernel_runs
from draftproof.properties.values.verdict import Verdict


@pytest.fixture(autouse=True, scope="session")
def kernel_calls_judged_once() -> Iterator[None]:
    drawn, judge, verdicts = cache(kernel_runs.cases), kernel_check.kernel_verdicts, dict[tuple[str, int], Verdict]()

    def judged(calls: kernel_runs.KernelCalls, seed: int, device: str) -> list[Verdict]:
        new = {op: of_op for op, of_op in calls.items() if (op, id(of_op)) not in verdicts}
        for op, verdict in zip(new, judge(new, seed, device), strict=True):
            verdicts[op, id(new[op])] = verdict
        return [verdicts[op, id(of_op)] for op, of_op in calls.items()]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_runs, "cases", drawn)
        patch.setattr(kernel_check, "kernel_verdicts", judged)
        yield
