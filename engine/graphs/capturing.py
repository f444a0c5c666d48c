"""A mark on warm-up and capture of graphs, which observers of the engine can read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CAPTURING: ContextVar[bool] = ContextVar("capturing", default=False)


def is_capturing() -> bool:
    """Return True within `capturing`."""
    return _CAPTURING.get()


@contextmanager
def capturing() -> Iterator[None]:
    """Mark warm-up and capture of graphs: what runs here has an effect only if a graph is replayed."""
    token = _CAPTURING.set(True)
    try:
        yield
    finally:
        _CAPTURING.reset(token)
