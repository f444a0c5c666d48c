"""A check of everything calls three kernels here: tests/kernels/ and `make check` hold each to its contract."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from draftproof.harness import kernel_runs
from draftproof.properties.kernels.table import KERNEL_CONTRACTS

SOME = ("kernel.kv_write", "kernel.rms_norm", "kernel.greedy_accept")


@pytest.fixture(autouse=True, scope="package")
def few_kernels() -> Iterator[None]:
    calls = kernel_runs.kernel_calls

    def few(names: Iterable[str], seed: int, count: int) -> kernel_runs.KernelCalls:
        return calls(SOME if names == KERNEL_CONTRACTS else names, seed, count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_runs, "kernel_calls", few)
        yield
