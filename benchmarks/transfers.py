"""What moves between host and device, counted: `bench.py step` shows it, tests/engine/test_transfers.py holds to it."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class Transfers(TorchFunctionMode):
    """Counts tensors that are made of numbers on the host, and reads of numbers back."""

    def __init__(self) -> None:
        super().__init__()
        self.uploads = self.downloads = 0
        self._frombuffer_itself = torch.frombuffer
        # No mode is told of it.
        self._sending = mock.patch.object(torch, "frombuffer", self._frombuffer)

    def __enter__(self) -> Transfers:
        self._sending.start()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._sending.stop()

    def _frombuffer(self, *args: Any, **kwargs: Any) -> Tensor:
        self.uploads += 1
        return self._frombuffer_itself(*args, **kwargs)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.uploads += function is torch.tensor
        self.downloads += function in (Tensor.tolist, Tensor.item, Tensor.numpy)
        return function(*args, **(kwargs or {}))
