"""Taps that are on: copies of intermediate tensors, taken inside graphs into static buffers captured with the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from draftproof.engine.probes import Taps

Tapped = dict[tuple[str, int], Tensor]


class RecordingTaps(Taps):
    """`take` returns what the launches since the last call recorded: (name, step) -> tensor."""

    def __init__(self) -> None:
        self._static: dict[tuple[str, int], Tapped] = {}
        self._target: Tapped | None = None
        self._warm = False
        self._seen: Tapped = {}
        self.dtypes: set[tuple[str, torch.dtype]] = set()

    def record(self, name: str, tensor: Tensor, step: int = -1) -> None:
        self.dtypes.add((name, tensor.dtype))
        if self._target is None:
            self._seen[name, step] = tensor.clone()
        elif self._warm:
            self._target[name, step] = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        else:
            self._target[name, step].copy_(tensor)

    def record_margin(self, name: str, logits: Tensor, step: int = -1) -> None:
        top = logits.topk(2, dim=-1).values
        # Penalised logits are whole numbers.
        top = top if top.is_floating_point() else top.to(torch.float64)
        self.record(name, top[:, 0] - top[:, 1], step)

    @contextmanager
    def warmup(self, kind: str, size: int) -> Iterator[None]:
        self._warm = True
        try:
            with self.capture(kind, size):
                yield
        finally:
            self._warm = False

    @contextmanager
    def capture(self, kind: str, size: int) -> Iterator[None]:
        self._target = self._static.setdefault((kind, size), {})
        try:
            yield
        finally:
            self._target = None

    def replayed(self, kind: str, size: int) -> None:
        self._seen.update(self._static[kind, size])

    def buffers(self) -> tuple[Tensor, ...]:
        return tuple(tensor for tapped in self._static.values() for tensor in tapped.values())

    def take(self) -> Tapped:
        seen, self._seen = self._seen, {}
        return seen
