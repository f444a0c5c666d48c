"""A naive twin of every op that only other engines have kernels for, from the definitions alone.

They judge these kernels as reference/ops judges the built-in ones, with loops and Python's own numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from draftproof.reference.others import rounds, sampling, slots, trees

_MODULES = (rounds, sampling, slots, trees)
OTHER_TWINS: dict[str, Callable[..., None]] = {
    name: twin
    for module in _MODULES
    for name, twin in vars(module).items()
    if callable(twin) and getattr(twin, "__module__", "") == module.__name__ and not name.startswith("_")
}
"""Every public function of these modules, by its name."""
