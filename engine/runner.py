"""Launches over static padded buffers: one captured graph for each batch size, or the same function run eagerly.

`R` live rows of a batch, `B` rows of the launch (a captured size, or R when nothing fits).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Mapping, Sequence

import torch
from torch import Tensor

from draftproof.engine.graphs.backend import Backend, Graph
from draftproof.engine.graphs.capturing import capturing
from draftproof.engine.probes import Probes
from draftproof.engine.ranks import SOLO, Issued, Solo
from draftproof.engine.stages import Launch
from draftproof.engine.upload import Columns, UploadBlock

Views = Mapping[str, Tensor]
Outputs = Mapping[str, Tensor]


def copy_all(targets: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy values to the targets of their names, by one launch for each dtype."""
    groups: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for name, target in targets.items():
        group = groups.setdefault(target.dtype, ([], []))
        group[0].append(target)
        group[1].append(values[name])
    for into, of in groups.values():
        if len(into) == 1:
            into[0].copy_(of[0])
        else:
            torch._foreach_copy_(into, of)


class Buffers:
    """Static inputs of launches, shared by the graphs of a round. `padding` is what rows beyond the live ones hold.

    Those that a host fills can share a block (upload.py).
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], padding: Mapping[str, int], block: UploadBlock | None = None
    ) -> None:
        self._tensors, self._padding, self._block = dict(tensors), dict(padding), block
        self._views: dict[int, dict[str, Tensor]] = {}
        self._live: dict[tuple[int, int], dict[str, Tensor]] = {}

    def view(self, size: int) -> dict[str, Tensor]:
        """Return every buffer of a launch of `size` rows."""
        if size not in self._views:
            own = {name: tensor[:size] for name, tensor in self._tensors.items()}
            self._views[size] = own | (self._block.views(size) if self._block else {})
        return self._views[size]

    def live(self, rows: int, size: int) -> dict[str, Tensor]:
        """Return the first rows of every buffer of a launch of `size` rows: the same tensors each time."""
        if (rows, size) not in self._live:
            self._live[rows, size] = {name: tensor[:rows] for name, tensor in self.view(size).items()}
        return self._live[rows, size]

    def fill(self, values: Mapping[str, Tensor], rows: int, size: int) -> None:
        """Refresh the named buffers: `rows` live rows from `values`, padding in the rest up to `size`."""
        view, live = self.view(size), self.live(rows, size)
        copy_all({name: live[name] for name in values}, values)
        for name in values:
            if size > rows:
                view[name][rows:].fill_(self._padding[name])

    def tell(self, columns: Columns, size: int) -> None:
        """Refresh the whole block from the host; rows and buffers without values get padding."""
        if self._block:
            self._block.fill(columns, self._padding, size)

    def pad(self, size: int, names: Container[str] | None = None) -> None:
        """Make every row padding, in all buffers or in the named ones."""
        for name, tensor in self.view(size).items():
            if names is None or name in names:
                tensor.fill_(self._padding[name])

    def dtypes(self) -> tuple[tuple[str, torch.dtype], ...]:
        own = tuple((name, tensor.dtype) for name, tensor in self._tensors.items())
        return own + (self._block.dtypes() if self._block else ())

    def tensors(self) -> tuple[Tensor, ...]:
        """Return all memory that they have."""
        return (*self._tensors.values(), *([self._block.memory] if self._block else []))


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
        at = bisect_left(self._sizes, rows)
        return self._sizes[at] if at < len(self._sizes) else rows

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
        with self._probes.taps.capture(self._tap, size), self._group.recording() as collectives:
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
        """Run, and return the outputs with the launch, before observers are told of it."""
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
        own = {name: output[:rows] for name, output in outputs.items()}
        live = {name: torch.empty_like(output) for name, output in own.items()}
        copy_all(live, own)
        return live, launch
