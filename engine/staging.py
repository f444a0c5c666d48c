"""Buffers on the host that host and device use in turns: inputs of a step, and its results.

Neither side may use one again before the other is done with it: the host not before it has waited for the work that
uses it, and the device not before the host has given it a work that does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.engine.probes import Probes
from draftproof.engine.stages import BufferUse
from draftproof.engine.streams import Stream

DEPTH = 2
"""How many buffers of a kind take turns: one for the step that runs, and one for the next."""


class Staging:
    """Buffers of `size` numbers of one kind; each work takes the next one."""

    def __init__(self, kind: str, size: int, stream: Stream, device: torch.device, probes: Probes) -> None:
        pinned = device.type == "cuda"
        self._buffers = [torch.zeros(size, dtype=torch.int64, pin_memory=pinned) for _ in range(DEPTH)]
        self._kind, self._stream, self._probes = kind, stream, probes

    def of_host(self, work: int) -> Tensor:
        """Return the buffer of a work for the host to fill or to read."""
        return self._used(work, by_device=False)

    def of_device(self, work: int) -> Tensor:
        """Return the buffer of a work that is about to be given to the device, for it to read or to fill."""
        return self._used(work, by_device=True)

    def _used(self, work: int, *, by_device: bool) -> Tensor:
        place = work % DEPTH
        self._probes.on_buffer(BufferUse(self._kind, place, by_device, work, self._stream.waited))
        return self._buffers[place]
