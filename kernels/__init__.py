"""Kernels as torch ops: eager on CPU, Triton on CUDA, and the same Triton source under the interpreter.

Every function that an `eager_*` module registers is an op here, under the function's name.
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING

from draftproof.kernels.registry import REGISTERED_OPS

if TYPE_CHECKING:
    from draftproof.kernels.registry import Kernel

    def __getattr__(name: str) -> Kernel: ...


# By their full names: transformers, with a checkout's root on the path, imports this folder as `kernels`.
for _module in pkgutil.iter_modules(__path__, "draftproof.kernels."):
    if ".eager_" in _module.name:
        importlib.import_module(_module.name)
globals().update(REGISTERED_OPS)
