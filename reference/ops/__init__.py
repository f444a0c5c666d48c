"""A naive twin of every kernel, of the same name and signature, from the definitions alone.

They judge the kernels; the reference itself never imports them. Loops over tokens, heads and positions, floats in
Python's float64, the ring in Python integers modulo 2^64, one rounding at the end where the definition has one.
"""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from draftproof.reference.ops import cache, decisions, dense, fp8, penalties, replay, sampling, state, token, trees

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., None]: ...


OP_TWINS: dict[str, Callable[..., None]] = {
    name: twin
    for module in (cache, decisions, dense, fp8, penalties, replay, sampling, state, token, trees)
    for name, twin in inspect.getmembers(module, inspect.isfunction)
    if twin.__module__ == module.__name__ and not name.startswith("_")
}
"""Every public function of these modules, by its name."""
globals().update(OP_TWINS)
