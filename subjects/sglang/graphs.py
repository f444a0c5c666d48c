"""Graph runners of a release on a machine without graphs: the captured closure is kept, and run again at replay."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from torch import Tensor

from draftproof.subjects.sglang.bare import StubAttributes
from draftproof.subjects.sglang.release import ALONE

Closure = Callable[[], Any]


class KeptGraph:
    """One captured closure. What it returned at capture is what every replay fills anew, as memory of a graph is."""

    def __init__(self, closure: Closure) -> None:
        """Run it twice as warm-up, and once more for the capture."""
        for _ in range(2):
            closure()
        self._closure, self.outputs, self.replays = closure, closure(), 0

    def replay(self) -> None:
        """Run it again; whatever Python bound in it when it was captured is bound still."""
        self.replays += 1
        _refill(self.outputs, self._closure())


def _refill(old: Any, new: Any) -> None:
    if isinstance(old, Tensor):
        if old is not new:
            old.copy_(new)
    elif isinstance(old, tuple | list):
        for one, other in zip(old, new, strict=True):
            _refill(one, other)
    elif hasattr(old, "__dict__"):
        for name, value in vars(old).items():
            _refill(value, getattr(new, name))


class KeptBackend(StubAttributes):
    """What later releases capture with: graphs by the key of their shape."""

    def __init__(self) -> None:
        super().__init__(kept={})

    @contextmanager
    def capture_session(self, *args: Any) -> Iterator[None]:
        """Do nothing around it."""
        yield

    replay_session = capture_session

    def capture_one(self, key: Any, closure: Closure, *args: Any, **options: Any) -> None:
        """Keep a closure under its key."""
        self.kept[key] = KeptGraph(closure)

    def can_run(self, batch: Any, key: Any) -> bool:
        """Return whether this shape was captured."""
        return key in self.kept

    def replay(self, key: Any, batch: Any, **options: Any) -> Any:
        """Run a closure again, and return what it fills."""
        self.kept[key].replay()
        return self.kept[key].outputs


def graph_runner(kind: type, sizes: Sequence[int], *args: Any, **options: Any) -> Any:
    """Return a graph runner of a release, made by its constructor, that has captured these batch sizes."""
    _capture_here(kind, sizes)
    return _keeping(kind)(*args, **options)


def graph_runners(kind: type, one: type, sizes: Sequence[int], *args: Any) -> Any:
    """Return a runner of several graph runners of a release, each of the class `one`, as `graph_runner` does."""
    _capture_here(kind, sizes)
    module = sys.modules[kind.__module__]
    setattr(module, one.__name__, _keeping(one))
    return kind(*args)


def _capture_here(kind: type, sizes: Sequence[int]) -> None:
    """Let runners of a module capture these batch sizes, without other ranks or a device."""
    module = sys.modules[kind.__module__]
    for name in (*ALONE, "check_cuda_graph_backend"):
        if hasattr(module, name):
            setattr(module, name, lambda *_, **__: False)
    setattr(module, "get_batch_sizes_to_capture", lambda *_, **__: (sorted(sizes), []))  # noqa: B010
    if hasattr(module, "resolve_decode_backend"):
        setattr(module, "resolve_decode_backend", lambda _: KeptBackend())  # noqa: B010


def replays(runner: Any, size: int) -> int:
    """Return how often the graph of a size was replayed."""
    if isinstance(runner.backend, KeptBackend):
        return next(graph.replays for key, graph in runner.backend.kept.items() if key.size == size)
    return int(runner.graphs[size].kept.replays)


@cache
def _keeping(kind: type) -> type:
    """Return the class, capturing without a device."""

    def capture(self: Any) -> None:
        self.graphs, self.output_buffers = {}, {}
        for size in reversed(self.capture_bs):
            if hasattr(kind, "capture_one_shape"):
                self.capture_one_shape(size, None)
            else:
                self.graphs[size], self.output_buffers[size] = self.capture_one_batch_size(size, None)

    def capture_graph(self: Any, graph: Any, pool: Any, stream: Any, closure: Closure) -> Any:
        graph.kept = KeptGraph(closure)
        return graph.kept.outputs

    def replay(self: Any, batch: Any) -> None:
        self.graphs[self.bs].kept.replay()

    own = {
        "capture": capture,
        "_create_graph": lambda self: StubAttributes(),
        "_capture_init": lambda self, closure: None,
        "_capture_graph": capture_graph,
        "__getattr__": StubAttributes.__getattr__,
        "__module__": kind.__module__,
    }
    if hasattr(kind, "_replay"):
        own["_replay"] = replay
    return type(kind.__name__, (kind,), own)
