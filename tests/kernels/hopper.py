"""A stand-in for Triton's driver of a Hopper GPU that need not be there, for programs that launch nothing."""

from types import SimpleNamespace

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

HOPPER = GPUTarget("cuda", 90, 32)


def stand_in() -> None:
    """Have Triton compile for Hopper in this process, with tensors of the CPU."""
    driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: HOPPER,
            get_current_device=lambda: 0,
            get_current_stream=lambda device=None: 0,
            get_active_torch_device=lambda: torch.device("cpu"),
        )
    )
