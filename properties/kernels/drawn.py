"""Calls as Hypothesis draws them, for tests that shrink what fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st

from draftproof.properties.choose import DrawnChoose
from draftproof.properties.kernels.buffers import NO_AIM, Aim
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.others.cases import EVERY_CASES, require_op


def kernel_cases(
    op: str, dtypes: Sequence[torch.dtype] = (), aim: Aim = NO_AIM, **more: Any
) -> st.SearchStrategy[KernelCase]:
    """Return the strategy of an op's calls; the arguments go to its function in `EVERY_CASES`. Raises InputError."""
    require_op(op)

    @st.composite
    def case(draw: st.DrawFn) -> KernelCase:
        return EVERY_CASES[op](DrawnChoose(draw), dtypes, aim=aim, **more)

    return case()
