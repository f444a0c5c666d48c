"""One allocation for everything the engine keeps between launches, with guard zones around every tensor.

Offsets and sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

ALIGN = 64
GUARD = 64
GUARD_BYTE = 0xC3


@dataclass(frozen=True)
class Region:
    """A tensor of the arena: its name and the bytes it covers."""

    name: str
    start: int
    size: int


def after_guard(offset: int) -> int:
    """Return where the next tensor may begin."""
    return offset + GUARD


class Arena:
    """`shapes` maps a name to (shape, dtype); every tensor is contiguous and preceded and followed by a guard zone."""

    def __init__(self, shapes: Mapping[str, tuple[tuple[int, ...], torch.dtype]], device: torch.device) -> None:
        offset, regions = 0, []
        for name, (shape, dtype) in shapes.items():
            offset = after_guard(offset)
            size = prod(shape) * dtype.itemsize
            regions.append(Region(name, offset, size))
            offset = -(-(offset + size) // ALIGN) * ALIGN
        self.regions = tuple(regions)
        self.memory = torch.full((after_guard(offset),), GUARD_BYTE, dtype=torch.uint8, device=device)
        self._tensors = {}
        for region, (shape, dtype) in zip(regions, shapes.values(), strict=True):
            raw = self.memory[region.start : region.start + region.size]
            raw.zero_()
            self._tensors[region.name] = raw.view(dtype).view(shape)
        is_guard = torch.ones_like(self.memory, dtype=torch.bool)
        for region in regions:
            is_guard[region.start : region.start + region.size] = False
        self._guard = torch.nonzero(is_guard).flatten()

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def damaged(self) -> tuple[int, ...]:
        """Offsets of guard bytes that no longer hold the guard pattern."""
        return tuple(self._guard[self.memory.index_select(0, self._guard) != GUARD_BYTE].tolist())
