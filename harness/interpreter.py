"""Triton's interpreter, where it is wrong, or asks for a GPU.

In Triton 3.9 the handle of a comparison of scalars has the dtype of what is compared. A mask that is broadcast from it
is then one of integers, which loads and stores refuse. And it times the configurations of a kernel that is tuned, on a
GPU that is not there; what they compute is the same.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np


def mend() -> None:
    """Let comparisons of scalars be broadcast as what they are, and run what is tuned, where Triton is interpreted."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    from triton.language import int1
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    original = InterpreterBuilder.create_splat
    if getattr(original, "is_mended", False):
        return

    def create_splat(self: Any, ret_ty: Any, arg: Any) -> Any:
        truth = arg.data.dtype == np.bool_
        return original(self, ret_ty, TensorHandle(arg.data, int1) if truth else arg)

    create_splat.is_mended = True  # type: ignore[attr-defined]
    InterpreterBuilder.create_splat = create_splat

    tuned = Autotuner.run

    def run(self: Any, *given: Any, **named: Any) -> Any:
        self.configs = self.configs[:1]
        return tuned(self, *given, **named)

    Autotuner.run = run
