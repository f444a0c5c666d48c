"""Launches over static padded buffers: one captured graph for each batch size, or the same function run eagerly.

`R` live rows of a batch, `B` rows of the launch (a captured size, or R when nothing fits).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

import torch
from torch import Tensor

from draftproof.engine.graphs.backend import Backend, Graph
from draftproof.engine.graphs.capturing import capturing
from draftproof.engine.probes import Probes
from draftproof.engine.ranks import SOLO, Issued, Solo
from draftproof.engine.stages import Launch

Views = Mapping[str, Tensor]
Outputs = Mapping[str, Tensor]


def copy_all(targets: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy values to the targets of their names, by one launch for each dtype."""
    groups: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for name, target in targets.items():
        group = groups.setdefault(target.dtype, ([], []))
        group[0].append(target)
        group[1].append(values[name])
    for group in groups.values():
        torch._foreach_copy_(*group)


class Buffers:
    """Static inputs of launches, shared by the graphs of a round. `padding` is what rows beyond the live ones hold."""

    def __init__(self, tensors: Mapping[str, Tensor], padding: Mapping[str, int]) -> None:
        self._tensors, self._padding = dict(tensors), dict(padding)
        self._views: dict[int, dict[str, Tensor]] = {}

    def view(self, size: int) -> dict[str, Tensor]:
        """Return the first `size` rows of every buffer."""
        if size not in self._views:
            self._views[size] = {name: tensor[:size] for name, tensor in self._tensors.items()}
        return self._views[size]

    def fill(self, values: Mapping[str, Tensor], rows: int, size: int) -> None:
        """Refresh the named buffers: `rows` live rows from `values`, padding in the rest up to `size`."""
        live = self.view(rows)
        copy_all({name: live[name] for name in values}, values)
        for name in values:
            if size > rows:
                self._tensors[name][rows:size].fill_(self._padding[name])

    def pad(self, size: int, names: Container[str] | None = None) -> None:
        """Make every row padding, of all buffers or of those of these names."""
        for name, tensor in self._tensors.items():
            if names is None or name in names:
                tensor[:size].fill_(self._padding[name])

    def dtypes(self) -> tuple[tuple[str, torch.dtype], ...]:
        return tuple((name, tensor.dtype) for name, tensor in self._tensors.items())

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(self._tensors.values())


class GraphRunner:
    """Runs `function(views) -> outputs` for any batch: the smallest size that holds it, or eagerly as it is.

    `width` is the verify width of the runtime that it belongs to, `layer` which of several graphs of its kind it is.
    """

    def __init__(
        self,
        kind: str,
        width: int,
        function: Callable[[Views], Outputs],
        buffers: Buffers,
        sizes: Sequence[int],
        probes: Probes,
        layer: int = 0,
        group: Solo = SOLO,
    ) -> None:
        self.kind, self.width, self.layer, self.buffers = kind, width, layer, buffers
        self._tap = f"{kind} {width} {layer}"
        self._function, self._sizes, self._probes, self._group = function, sorted(sizes), probes, group
        self._graphs: dict[int, tuple[Graph, tuple[str, ...], tuple[Issued, ...]]] = {}
        self._backend: Backend | None = None
        self._declared: tuple[Tensor, ...] = ()

    def size_for(self, rows: int) -> int:
        """Return the rows of the launch that runs `rows` live ones."""
        return next((size for size in self._sizes if size >= rows), rows)

    def capture_with(self, backend: Backend, declared: Sequence[Tensor]) -> None:
        """Let `prepare` capture from now on, with `declared` and the buffers as the memory that graphs may touch."""
        self._backend, self._declared = backend, tuple(declared)

    def prepare(self, rows: int) -> None:
        """Capture the size that `rows` will run at, if that is still to be done; overwrites the buffers."""
        size = self.size_for(rows)
        if self._backend is not None and size not in self._graphs and size in self._sizes:
            self._capture(size, self._backend)

    @capturing()
    def _capture(self, size: int, backend: Backend) -> None:
        self._probes.before_launch("capture")
        self.buffers.pad(size)
        with self._probes.taps.warmup(self._tap, size):
            names = tuple(self._function(self.buffers.view(size)))
        memory = (*self._declared, *self.buffers.tensors(), *self._probes.taps.buffers())
        self.buffers.pad(size)
        with self._probes.taps.capture(self._tap, size), self._group.noted() as collectives:
            graph = backend.capture(lambda: tuple(self._function(self.buffers.view(size)).values()), memory)
        self._graphs[size] = (graph, names, tuple(collectives))
        self._probes.on_launch(Launch("capture", size, 0, 0, self.width))

    def launch(self, rows: int, num_rows: int | None = None) -> Outputs:
        """Run over filled buffers; outputs of the live rows, the caller's own to keep.

        Of ranks a launch holds the `num_rows` of the one with the most.
        """
        self._probes.before_launch(self.kind)
        live, launch = self.run(rows, num_rows)
        self._probes.on_launch(launch)
        return live

    def run(self, rows: int, num_rows: int | None = None) -> tuple[Outputs, Launch]:
        """Return the same with the launch, of which nobody is told yet."""
        size = self.size_for(rows if num_rows is None else num_rows)
        if size in self._graphs:
            graph, names, collectives = self._graphs[size]
            self._group.enter(collectives)
            graph.replay()
            self._probes.taps.replayed(self._tap, size)
            outputs = dict(zip(names, graph.outputs, strict=True))
            launch = Launch(self.kind, size, rows, graph.replays, self.width, self.layer)
        else:
            outputs = dict(self._function(self.buffers.view(size)))
            launch = Launch(self.kind, 0, rows, 0, self.width, self.layer)
        outputs = {name: output[:rows] for name, output in outputs.items()}
        live = {name: torch.empty_like(output) for name, output in outputs.items()}
        copy_all(live, outputs)
        return live, launch
