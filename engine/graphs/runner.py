"""Static padded buffers around captured graphs.

`R` live rows of a batch; a captured size is a number of rows that includes padding.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from draftproof.engine.graphs.backend import Backend, Graph

Buffers = dict[str, Tensor]
BatchFunction = Callable[[Buffers], Buffers]


@dataclass(frozen=True)
class Launch:
    """How one batch ran. `size`: rows of the graph, 0 if eager. `replays`: of that graph so far, this one included."""

    name: str
    size: int
    replays: int


@dataclass(frozen=True)
class _Captured:
    graph: Graph
    names: tuple[str, ...]


class GraphRunner:
    """Runs `function` in the smallest captured size that holds a batch, or eagerly if there is none.

    `static`: one buffer a name, leading dimension = the largest size. `function` gets views of them (leading
    dimension = size) and returns tensors with that leading dimension. `pad`: the value of padding rows by name,
    0 where not named. `backend` None runs everything eagerly.
    """

    def __init__(
        self,
        name: str,
        function: BatchFunction,
        static: Mapping[str, Tensor],
        sizes: Sequence[int],
        backend: Backend | None,
        declared: Sequence[Tensor],
        pad: Mapping[str, int],
    ) -> None:
        short = {key: buffer.shape[0] for key, buffer in static.items() if buffer.shape[0] < max(sizes, default=0)}
        if short:
            raise ValueError(f"{name}: static buffers smaller than the largest captured size {max(sizes)}: {short}")
        self.name = name
        self.sizes = tuple(sorted(set(sizes)))
        self.last_launch: Launch | None = None
        self._function = function
        self._static = dict(static)
        self._backend = backend
        self._declared = (*declared, *static.values())
        self._pad = dict(pad)
        self._graphs: dict[int, _Captured] = {}

    def capture(self) -> None:
        """Warm up on padding and capture every size, largest first, so that the smaller reuse the pool's memory."""
        if self._backend is None:
            return
        for size in reversed(self.sizes):
            self._fill_padding(0, size, {})
            self._function(self._views(size))
            self._graphs[size] = self._capture(self._backend, size)

    def size_for(self, rows: int) -> int:
        """The captured size that `rows` rows run in; 0 means eagerly."""
        return next((size for size in self.sizes if size >= rows and size in self._graphs), 0)

    def run(self, inputs: Mapping[str, Tensor], rows: int, padding: Mapping[str, int]) -> Mapping[str, Tensor]:
        """Run the first `rows` rows of `inputs`, one tensor for each static buffer. `padding` overrides `pad`.

        Returns clones, cut to `rows`: a graph's own outputs die at the next replay. Raises ValueError if a buffer
        has no input, or an input no buffer.
        """
        if inputs.keys() != self._static.keys():
            raise ValueError(f"{self.name}: inputs {sorted(inputs)} are not the buffers {sorted(self._static)}")
        size = self.size_for(rows)
        outputs = self._replay(inputs, rows, size, padding) if size else self._run_eagerly(inputs, rows)
        return {name: output[:rows].clone() for name, output in outputs.items()}

    def _replay(self, inputs: Mapping[str, Tensor], rows: int, size: int, padding: Mapping[str, int]) -> Buffers:
        for name, buffer in self._static.items():
            buffer[:rows].copy_(inputs[name][:rows])
        self._fill_padding(rows, size, padding)
        captured = self._graphs[size]
        captured.graph.replay()
        self.last_launch = Launch(self.name, size, captured.graph.replays)
        return dict(zip(captured.names, captured.graph.outputs, strict=True))

    def _run_eagerly(self, inputs: Mapping[str, Tensor], rows: int) -> Buffers:
        buffers = {
            name: inputs[name][:rows].to(device=buffer.device, dtype=buffer.dtype, copy=True)
            for name, buffer in self._static.items()
        }
        self.last_launch = Launch(self.name, 0, 0)
        return self._function(buffers)

    def _capture(self, backend: Backend, size: int) -> _Captured:
        names: list[str] = []

        def call() -> tuple[Tensor, ...]:
            outputs = self._function(self._views(size))
            names[:] = outputs
            return tuple(outputs.values())

        graph = backend.capture(call, self._declared)
        return _Captured(graph, tuple(names))

    def _fill_padding(self, rows: int, size: int, padding: Mapping[str, int]) -> None:
        for name, buffer in self._static.items():
            if rows < size:
                buffer[rows:size].fill_(padding.get(name, self._pad.get(name, 0)))

    def _views(self, size: int) -> Buffers:
        return {name: buffer[:size] for name, buffer in self._static.items()}
