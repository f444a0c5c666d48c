"""The strategy of each op's calls: `EVERY_CASES[op](dtypes)`."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis.strategies import SearchStrategy

from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.cases import CASES
from draftproof.properties.kernels.others import rounds, sampling, slots, trees
from draftproof.properties.kernels.others.table import OTHERS
from draftproof.properties.kernels.table import functions_of

EVERY_CASES: dict[str, Callable[..., SearchStrategy[KernelCase]]] = {
    **CASES,
    **functions_of((rounds, sampling, slots, trees), OTHERS),
}
"""The strategy of each op, the built-in engine's and others'."""
