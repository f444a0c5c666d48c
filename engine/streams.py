"""Streams: work that a device runs in order while its host goes on, and events for which the host waits.

Source: the forward stream of SGLang's and vLLM's schedulers (docs/semantics/overlap.md, S-OVERLAP).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import torch

Work = Callable[[], None]
_SPIN = 20_000_000
"""Cycles for which a GPU is kept busy before work that is to run late: some milliseconds."""


class Stream(Protocol):
    """Works are numbered 1, 2, .. as they are given."""

    @property
    def given(self) -> int:
        """The number of the last work that was given."""
        ...

    @property
    def waited(self) -> int:
        """The number of the last work that the host has waited for."""
        ...

    def run(self, work: Work, *, late: bool) -> None:
        """Give a work to the device, behind all that it was given before. A `late` one runs as late as it may."""
        ...

    def wait(self, number: int) -> None:
        """Let the host wait until this work, and all before it, have run."""
        ...


class HostStream:
    """A stream on a CPU with delays that are not left to chance: a `Stream`.

    Work runs when it is given, or, if it is late, when the host waits for it or for work behind it.
    """

    def __init__(self) -> None:
        self.given = self.waited = 0
        self._queue = deque[Work]()

    def run(self, work: Work, *, late: bool) -> None:
        """See Stream."""
        self._queue.append(work)
        self.given += 1
        if not late:
            self._run_to(self.given)

    def wait(self, number: int) -> None:
        """See Stream."""
        self._run_to(number)
        self.waited = max(self.waited, number)

    def _run_to(self, number: int) -> None:
        while self._queue and self.given - len(self._queue) < number:
            self._queue.popleft()()


class CudaStream:
    """A second stream of a GPU, and an event behind each work: a `Stream`.

    What the host has written by then, on the stream that is current, comes before a work.
    """

    def __init__(self, device: torch.device) -> None:
        self.given = self.waited = 0
        self._stream = torch.cuda.Stream(device)
        self._events = dict[int, torch.cuda.Event]()

    def run(self, work: Work, *, late: bool) -> None:
        """See Stream."""
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            if late:
                torch.cuda._sleep(_SPIN)
            work()
            self.given += 1
            self._events[self.given] = torch.cuda.Event()
            self._events[self.given].record(self._stream)

    def wait(self, number: int) -> None:
        """See Stream."""
        for one in [one for one in self._events if one <= number]:
            self._events.pop(one).synchronize()
        self.waited = max(self.waited, number)


def stream_of(device: torch.device) -> Stream:
    """Return a stream of a device."""
    return CudaStream(device) if device.type == "cuda" else HostStream()
