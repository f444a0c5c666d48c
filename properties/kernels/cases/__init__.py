"""Strategies for calls of ops, one an op: `CASES[op](dtypes)`.

Sizes are pairwise distinct, since many wrong strides hide behind sizes that are equal. Every tensor lies somewhere in a
larger allocation, its dimensions in any order, and what is around it is poison; so are pool slots that no request owns.
"""

from collections.abc import Callable

from hypothesis.strategies import SearchStrategy

from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.cases import (
    cache,
    decisions,
    dense,
    penalties,
    replay,
    sampling,
    state,
    token,
    trees,
)
from draftproof.properties.kernels.table import functions_of

CASES: dict[str, Callable[..., SearchStrategy[KernelCase]]] = functions_of(
    (cache, decisions, dense, penalties, replay, sampling, state, token, trees)
)
"""The strategy of each op, sorted by the op's name."""
