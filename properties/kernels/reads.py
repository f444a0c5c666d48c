"""What an interpreted Triton kernel reads: only elements of tensors that it was given.

With a mask one place too wide a lane reads what lies behind a row, or behind the tensor. Mostly the value is multiplied
by zero or thrown away, so that no output shows it; on a GPU the same lane reads another allocation, or faults. The
interpreter computes every address as a GPU does, so here each one is looked up. Poison behind every row would not do:
a mask's `other` or a zero weight hides it as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch


@dataclass(frozen=True)
class StrayRead:
    """A read of what is no element of a tensor: `offset` counts elements from the start of the nearest one.

    `argument` is "" where the kernel's launcher made that tensor itself.
    """

    argument: str
    offset: int


class WatchedReads:
    """While entered, and where Triton is interpreted, the first stray read of a kernel is kept in `stray`."""

    def __init__(self) -> None:
        self.stray: StrayRead | None = None
        self._given: dict[str, torch.Tensor] = {}
        self._memory: _Memory | None = None
        self._patches = ExitStack()

    def given(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take the arguments of the call, by name."""
        self._given = tensors

    def __enter__(self) -> WatchedReads:
        if os.environ.get("TRITON_INTERPRET") == "1":
            from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

            host, load = GridExecutor._init_args_hst, InterpreterBuilder.create_masked_load

            def _init_args_hst(executor: Any, args: Any, kwargs: Any) -> Any:
                on_host = host(executor, args, kwargs)
                launched = {str(number): x for number, x in enumerate(_tensors(on_host))}
                self._memory = _Memory({**self._given, **launched})
                return on_host

            def create_masked_load(builder: Any, ptrs: Any, mask: Any, *rest: Any) -> Any:
                if self._memory is not None and self.stray is None:
                    self.stray = self._memory.stray(ptrs.data[mask.data.astype(bool)], ptrs.get_element_ty())
                return load(builder, ptrs, mask, *rest)

            self._patches.enter_context(patch.object(GridExecutor, "_init_args_hst", _init_args_hst))
            self._patches.enter_context(patch.object(InterpreterBuilder, "create_masked_load", create_masked_load))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()


def _tensors(given: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors among a launch's arguments: in lists, in tuples, and behind descriptors."""
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, dict):
        yield from _tensors(list(given.values()))
    elif isinstance(given, Sequence) and not isinstance(given, str):
        for one in given:
            yield from _tensors(one)
    elif hasattr(given, "base"):
        yield from _tensors(given.base)


class _Memory:
    """Which bytes are of elements of a call's tensors."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self._tensors = tensors
        marks: dict[int, torch.Tensor] = {}
        for x in tensors.values():
            storage, size = x.untyped_storage(), x.element_size()
            inside = marks.setdefault(storage.data_ptr(), torch.zeros(storage.nbytes(), dtype=torch.bool))
            strides = (*(stride * size for stride in x.stride()), 1)
            inside.as_strided((*x.shape, size), strides, x.storage_offset() * size).fill_(True)
        bases = sorted(marks)
        self._bases = np.array(bases, np.uint64)
        self._sizes = np.array([len(marks[base]) for base in bases], np.int64)
        self._begins = np.cumsum(self._sizes) - self._sizes
        self._marks = torch.cat([marks[base] for base in bases]).numpy() if bases else np.zeros(0, bool)

    def stray(self, addresses: np.ndarray, element: Any) -> StrayRead | None:
        """Return the first of the addresses at which no element of a tensor lies, if there is one."""
        bytes_ = max(1, element.primitive_bitwidth // 8)
        addresses = addresses.astype(np.uint64).ravel()
        zone = np.searchsorted(self._bases, addresses, "right") - 1
        known = zone >= 0
        zone = np.maximum(zone, 0)
        if not len(self._bases):
            return StrayRead("", 0) if addresses.size else None
        offsets = (addresses - self._bases[zone]).astype(np.int64)
        known &= (offsets >= 0) & (offsets <= self._sizes[zone] - bytes_)
        places = np.where(known, self._begins[zone] + offsets, 0)
        known &= self._marks[places] & self._marks[np.where(known, places + bytes_ - 1, 0)]
        if known.all():
            return None
        first = int(np.flatnonzero(~known)[0])
        return self._described(int(addresses[first]), int(self._bases[zone[first]]))

    def _described(self, address: int, base: int) -> StrayRead:
        """Name the nearest tensor of the allocation that begins last before the address."""
        beside = {name: x for name, x in self._tensors.items() if x.untyped_storage().data_ptr() == base}
        name, x = min(beside.items(), key=lambda item: (abs(address - item[1].data_ptr()), item[0].isdigit()))
        return StrayRead("" if name.isdigit() else name, (address - x.data_ptr()) // x.element_size())
