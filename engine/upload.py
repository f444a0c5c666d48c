"""Numbers on their way to the device: whatever a stage tells it at once travels in one copy."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Columns = Mapping[str, Sequence[int] | Sequence[float]]


def uploaded(columns: Columns, device: torch.device) -> dict[str, Tensor]:
    """Return each column as a tensor on the device, int64 or, of floats, float64; nobody waits for the copy."""
    numbers = array("q")
    floats = {name for name, column in columns.items() if column and isinstance(column[0], float)}
    for name, column in columns.items():
        # A float travels as the bits that it is made of.
        numbers.frombytes(array("d" if name in floats else "q", column).tobytes())
    sent = torch.tensor(numbers, dtype=torch.int64).to(device, non_blocking=True)
    parts = sent.split([len(column) for column in columns.values()])
    return {
        name: part.view(torch.float64) if name in floats else part for name, part in zip(columns, parts, strict=True)
    }
