"""Calls of kernels are drawn once for all commands: they are a function of their op, seed and count."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from draftproof.harness import check


@pytest.fixture(autouse=True, scope="session")
def kernel_calls_drawn_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "cases", cache(check.cases))
        yield
