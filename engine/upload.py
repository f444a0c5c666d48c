"""Numbers on their way to the device: whatever a stage tells it at once travels in one copy.

A float travels as the bits that it is made of, as all numbers have 8 bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor

Columns = Mapping[str, Sequence[int] | Sequence[float]]
_ALIGNED = 2
"""Buffers of a block begin at every 16th byte, as kernels are compiled for."""


def uploaded(columns: Columns, device: torch.device) -> dict[str, Tensor]:
    """Return each column as a tensor on the device, int64 or, of floats, float64, without waiting for the copy."""
    numbers = list[int]()
    floats = {name for name, column in columns.items() if column and isinstance(column[0], float)}
    for name, column in columns.items():
        numbers += _bits(column) if name in floats else column  # type: ignore[arg-type]
    if not numbers:
        return {name: torch.empty(0, dtype=torch.int64, device=device) for name in columns}
    sent = torch.frombuffer(array("q", numbers), dtype=torch.int64).to(device, non_blocking=True)
    parts = sent.split([len(column) for column in columns.values()])
    return {
        name: part.view(torch.float64) if name in floats else part for name, part in zip(columns, parts, strict=True)
    }


class UploadBlock:
    """Memory of buffers that one upload fills: `shapes` are the shapes of a row of each, of int64 or float64.

    For a launch of a given number of rows the buffers lie one behind the other, so that where one begins depends on the
    size.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[tuple[int, ...], torch.dtype]], rows: int, device: torch.device
    ) -> None:
        self._shapes = dict(shapes)
        self._widths = {name: prod(shape) for name, (shape, _) in shapes.items()}
        self.memory = torch.zeros(sum(self._lengths(rows)), dtype=torch.int64, device=device)

    def views(self, size: int) -> dict[str, Tensor]:
        """Return the buffers of a launch of `size` rows."""
        lengths = self._lengths(size)
        parts = self.memory[: sum(lengths)].split(lengths)
        return {
            name: part[: self._widths[name] * size].view(dtype).view(size, *shape)
            for (name, (shape, dtype)), part in zip(self._shapes.items(), parts, strict=True)
        }

    def fill(self, columns: Columns, padding: Mapping[str, int], size: int) -> None:
        """Upload columns, row after row, with padding behind the last row, without waiting for the copy.

        A buffer without a column has padding only.
        """
        numbers = list[int]()
        for name, length in zip(self._widths, self._lengths(size), strict=True):
            column = columns.get(name, ())
            numbers += _bits(column) if self._shapes[name][1] == torch.float64 else column  # type: ignore[arg-type]
            numbers += [padding[name]] * (length - len(column))
            if len(column) > length:
                raise ValueError(f"invalid {name}, of {len(column)} numbers: expected at most {length}")
        sent = torch.frombuffer(array("q", numbers), dtype=torch.int64)
        self.memory[: len(numbers)].copy_(sent, non_blocking=True)

    def _lengths(self, size: int) -> list[int]:
        """Return how many numbers each buffer has room for."""
        return [-(-width * size // _ALIGNED) * _ALIGNED for width in self._widths.values()]

    def dtypes(self) -> tuple[tuple[str, torch.dtype], ...]:
        return tuple((name, dtype) for name, (_, dtype) in self._shapes.items())


def _bits(column: Sequence[float]) -> array[int]:
    return array("q", array("d", column).tobytes())
