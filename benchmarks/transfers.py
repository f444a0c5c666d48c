"""What moves between host and device, counted: step_speed.py shows it, tests/engine/test_transfers.py holds to it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class Transfers(TorchFunctionMode):
    """Counts tensors that are made of numbers on the host, and reads of numbers back."""

    def __init__(self) -> None:
        super().__init__()
        self.uploads = self.downloads = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.uploads += function is torch.tensor
        self.downloads += function in (Tensor.tolist, Tensor.item, Tensor.numpy)
        return function(*args, **(kwargs or {}))
