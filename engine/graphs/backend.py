"""What a graph backend is: capture a function once, replay it on the same storages."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from torch import Tensor

from draftproof.properties.lib.errors import DraftproofError

GraphFunction = Callable[[], tuple[Tensor, ...]]


class CaptureError(DraftproofError, RuntimeError):
    """A function did what a graph cannot hold.

    `rule` names the rule that was broken, `op` the operation that broke it.
    """

    def __init__(self, rule: str, op: str, reason: str) -> None:
        super().__init__(f"{op} cannot be captured ({rule}): {reason}")
        self.rule = rule
        self.op = op


class Graph(Protocol):
    """A captured function. `outputs` are in the graph's private memory: they die at the pool's next replay."""

    outputs: tuple[Tensor, ...]
    replays: int

    def replay(self) -> None:
        """Run what was captured, on the storages that it was captured on."""


class Backend(Protocol):
    """Captures graphs. The graphs of one instance share one memory pool."""

    name: str

    def capture(self, function: GraphFunction, declared: Sequence[Tensor]) -> Graph:
        """Capture `function`, which reads static tensors and returns its outputs.

        The caller has warmed the function up. `declared` lists tensors whose storages the graph may touch.
        Raises CaptureError; after that, as after a success, memory that existed before is unchanged.
        """


class _Active(threading.local):
    """The capture under way in this thread; `fail` records an error that it must end with."""

    fail: Callable[[str, str, str], Any] | None = None


_active = _Active()


@contextmanager
def exclusive_capture(fail: Callable[[str, str, str], Any]) -> Iterator[None]:
    """Mark a capture as under way; a second one inside it is an error of both."""
    refuse_inside_capture("capture")
    _active.fail = fail
    try:
        yield
    finally:
        _active.fail = None


def refuse_inside_capture(op: str) -> None:
    """Raise CaptureError, and fail the capture under way, if there is one."""
    if _active.fail is not None:
        _active.fail("nested", op, "graphs are captured and replayed outside of any capture")


def check_outputs(outputs: object) -> tuple[Tensor, ...]:
    """Return `outputs` if it is a tuple of tensors. Raises CaptureError."""
    if not isinstance(outputs, tuple) or not all(isinstance(output, Tensor) for output in outputs):
        raise CaptureError("outputs", "return", "a captured function returns a tuple of tensors")
    return outputs
