"""Lists of calls of an op, a function of a seed: they come to all that is wanted of them, then to powers of two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import torch

from draftproof.properties.choose import SeededChoose
from draftproof.properties.kernels.blocks import covering, random_aim
from draftproof.properties.kernels.buffers import NO_AIM, Aim
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.others.cases import EVERY_CASES, require_op

LEAST_CALLS = 12
"""The least number of calls in a list that has everything that is wanted."""
_USUAL = 3
"""One of this many calls has no size that is asked for; the first call is one of these."""


def calls(op: str, seed: int, dtypes: Sequence[torch.dtype] = (), **more: Any) -> Iterator[KernelCase]:
    """Yield calls without an end: a function of the arguments, and of whether Triton is interpreted.

    `more` is what the op's calls may be asked for besides (buffers.DRAWS).
    """
    require_op(op)
    aims = iter(covering(op, SeededChoose(f"sizes of {op} {seed}")))
    for number in count():
        choose = SeededChoose(f"call of {op} {seed} {number}")
        yield EVERY_CASES[op](choose, dtypes, aim=_aim(op, number, aims, choose), **more)


def _aim(op: str, number: int, aims: Iterator[Aim], choose: SeededChoose) -> Aim:
    if number % _USUAL == 0:
        return NO_AIM
    return next(aims, None) or random_aim(op, choose)


def enough(op: str, seed: int) -> int:
    """Return how many calls of a list come to all that is wanted of an op."""
    aims = len(covering(op, SeededChoose(f"sizes of {op} {seed}")))
    return max(LEAST_CALLS, aims + 1 + (aims - 1) // (_USUAL - 1) if aims else 0)
