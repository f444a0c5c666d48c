"""One call of an op. Every tensor argument lies inside a larger allocation, and each run gets a fresh copy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

Kernel = Callable[..., None]

_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def words(storage: torch.Tensor) -> torch.Tensor:
    """Return the bits as integers, so that NaN equals itself and -0 differs from 0."""
    return storage.view(_WORDS[storage.element_size()])


@dataclass(frozen=True, eq=False)
class Buffer:
    """A tensor argument as it lies in its allocation: `storage` is flat and holds everything around the tensor too."""

    storage: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, storage: torch.Tensor) -> torch.Tensor:
        """Return the tensor as a view of `storage`, an allocation of the same size."""
        return storage.as_strided(self.shape, self.strides, self.offset)

    @property
    def tensor(self) -> torch.Tensor:
        return self.of(self.storage)

    @cached_property
    def elements(self) -> torch.Tensor:
        """The number of the element, in the tensor's own order, at each offset of the allocation; -1 around them."""
        numbers = torch.full(self.storage.shape, -1)
        self.of(numbers).copy_(torch.arange(self.tensor.numel()).reshape(self.shape))
        return numbers

    def index(self, offset: int) -> tuple[int, ...]:
        """Return the index of the element at an offset of the allocation."""
        return tuple(int(i) for i in torch.unravel_index(self.elements[offset], self.shape))

    def __repr__(self) -> str:
        tensor = self.tensor
        values = tensor.tolist() if tensor.numel() <= 64 else "..."
        return (
            f"Buffer({values}, {tensor.dtype}, shape={self.shape}, strides={self.strides}, offset={self.offset}, "
            f"allocated={self.storage.numel()})"
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print for Hypothesis, which would show all fields, the whole allocation included."""
        printer.text(repr(self))


@dataclass(frozen=True, eq=False)
class KernelCase:
    """One call of an op: its arguments by name, in the order of the signature."""

    op: str
    arguments: Mapping[str, Buffer | int | float]

    @property
    def buffers(self) -> dict[str, Buffer]:
        return {name: value for name, value in self.arguments.items() if isinstance(value, Buffer)}

    def run(self, kernel: Kernel, device: str = "cpu") -> dict[str, torch.Tensor]:
        """Call `kernel` on fresh copies on `device`; return every argument's whole allocation afterwards, on CPU."""
        storages = {name: buffer.storage.to(device, copy=True) for name, buffer in self.buffers.items()}
        given = self.arguments.items()
        kernel(*(value.of(storages[name]) if isinstance(value, Buffer) else value for name, value in given))
        return {name: storage.cpu() for name, storage in storages.items()}
