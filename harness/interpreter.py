"""Triton, where it is wrong, or slow, or asks for a GPU that is not there.

In Triton 3.9 the interpreter's handle of a comparison of scalars has the dtype of the compared values. A mask that is
broadcast from it then holds integers, which loads and stores refuse. Packages enter the device of a tensor, as
torch.cuda.device. Kernels that are tuned have dozens of configurations, which compute the same.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from draftproof.kernels.interpreted import mend_numbers


def mend() -> None:
    """Let comparisons of scalars be broadcast as what they are, and devices be entered, where Triton is interpreted."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    from triton.language import int1
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    untuned()
    mend_numbers()
    torch.cpu.device = getattr(torch.cpu, "device", lambda _: nullcontext())  # type: ignore[attr-defined]
    original = InterpreterBuilder.create_splat
    if getattr(original, "is_mended", False):
        return

    def create_splat(self: Any, ret_ty: Any, arg: Any) -> Any:
        truth = arg.data.dtype == np.bool_
        return original(self, ret_ty, TensorHandle(arg.data, int1) if truth else arg)

    create_splat.is_mended = True  # type: ignore[attr-defined]
    InterpreterBuilder.create_splat = create_splat


def untuned() -> None:
    """Run kernels that are tuned in their first configuration, and multiply float32 as such where a GPU has TF32."""
    os.environ["TRITON_F32_DEFAULT"] = "ieee"
    from triton.runtime.autotuner import Autotuner

    tuned = Autotuner.run
    if getattr(tuned, "is_untuned", False):
        return

    def run(self: Any, *given: Any, **named: Any) -> Any:
        self.configs = self.configs[:1]
        return tuned(self, *given, **named)

    run.is_untuned = True  # type: ignore[attr-defined]
    Autotuner.run = run
