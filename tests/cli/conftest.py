"""Calls of kernels are drawn, and judged, once for all commands: they are a function of their op, seed and count."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from draftproof.harness import kernel_runs
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.values.verdict import Verdict


@pytest.fixture(autouse=True, scope="session")
def kernel_calls_judged_once() -> Iterator[None]:
    drawn, judge, verdicts = cache(kernel_runs.cases), kernel_runs.kernel_verdict, dict[tuple[str, int, str], Verdict]()

    def judged(op: str, calls: tuple[KernelCase, ...], device: str) -> Verdict:
        key = (op, id(calls), device)
        if key not in verdicts:
            verdicts[key] = judge(op, calls, device)
        return verdicts[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_runs, "cases", drawn)
        patch.setattr(kernel_runs, "kernel_verdict", judged)
        # Verdicts are remembered in this process.
        patch.setattr(kernel_runs, "_ON_A_CPU", 1)
        yield
