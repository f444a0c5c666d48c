"""Times of an engine's launches, seen through its probes: events on a CUDA device, the host's clock on a CPU."""

from __future__ import annotations

import time
from typing import Any

import torch

from draftproof.engine.probes import Probes
from draftproof.engine.stages import Launch

Mark = torch.cuda.Event | float


class Clock(Probes):
    """When each launch began and ended, on the device if there is one; captures do not count."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._cuda = device == "cuda"
        self._begin: Mark = 0.0
        self._launches: list[tuple[Launch, Mark, Mark]] = []

    def before_launch(self, kind: str) -> None:
        self._begin = self._now()

    def on_launch(self, launch: Launch) -> None:
        if launch.kind != "capture":
            self._launches.append((launch, self._begin, self._now()))

    def take(self) -> list[tuple[Launch, Mark, Mark]]:
        """All launches since the last call."""
        taken, self._launches = self._launches, []
        return taken

    def _now(self) -> Mark:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def microseconds(begin: Any, end: Any) -> float:
    """Between two marks of one clock, both of which the device has passed."""
    if isinstance(begin, torch.cuda.Event):
        return 1e3 * begin.elapsed_time(end)
    return 1e6 * (end - begin)
