"""What makes the calls of each op: `EVERY_CASES[op](choose, dtypes)`."""

from __future__ import annotations

from collections.abc import Callable

from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.cases import CASES
from draftproof.properties.kernels.others import rounds, sampling, slots, trees
from draftproof.properties.kernels.others.table import OTHERS
from draftproof.properties.kernels.table import functions_of
from draftproof.properties.lib.errors import InputError
from draftproof.properties.lib.names import did_you_mean

EVERY_CASES: dict[str, Callable[..., KernelCase]] = {
    **CASES,
    **functions_of((rounds, sampling, slots, trees), OTHERS),
}
"""What makes the calls of each op, the built-in engine's and others'."""


def require_op(op: str) -> None:
    """Raise InputError for a name that no op has."""
    if op not in EVERY_CASES:
        hint = did_you_mean(op, EVERY_CASES) if isinstance(op, str) else ""
        raise InputError(f"invalid op {op!r}: expected one of {', '.join(EVERY_CASES)}{hint}")
