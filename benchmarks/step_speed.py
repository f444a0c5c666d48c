"""What the host adds to the graphs of a decode step (`make bench-gpu`).

The target is that of decode_speed.py, with drafts of an EAGLE head or of n-grams. "step ms" is the mean
`Engine.step` of rounds alone, from an idle device to an idle device: planning, inputs, graphs, results. "graphs ms" is
how long the graphs of the same step take, replayed one behind the other with nothing in between. "served ms" is a step
of the same texts, one behind the other to their ends: what the host does after it has launched the last graph of a step
and before it needs the device again costs nothing then. "uploads" are tensors that the step makes of numbers on the
host, "downloads" how often it reads numbers back, each in most steps. `--tiny` runs on a CPU, where a graph runs its
operations one by one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import bench
import torch
from decode_model import Setup, setup
from rich.console import Console
from server import NGRAM, Columns, Server, dense_model, eagle_draft, generator, prompts, sizes
from torch import Tensor
from transfers import Transfers

from draftproof.engine.drafts.base import DraftModel
from draftproof.engine.graphs.backend import Backend, Graph
from draftproof.engine.graphs.cuda import CudaBackend
from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.models.llama import Llama

WARM = 3
COLUMNS: Columns = {
    "draft": lambda row: row["draft"],
    "batch": lambda row: row["batch"],
    "step ms": lambda row: f"{row['step_ms']:.3f}",
    "graphs ms": lambda row: f"{row['graphs_ms']:.3f}",
    "step / graphs": lambda row: f"{row['step_of_graphs']:.2f}",
    "served ms": lambda row: f"{row['served_ms']:.3f}",
    "served / graphs": lambda row: f"{row['served_of_graphs']:.2f}",
    "uploads": lambda row: row["uploads"],
    "downloads": lambda row: row["downloads"],
}


class _Replayed:
    """A graph that notes each of its replays."""

    def __init__(self, graph: Graph, replayed: list[Graph]) -> None:
        self._graph, self._replayed, self.outputs = graph, replayed, graph.outputs

    @property
    def replays(self) -> int:
        return self._graph.replays

    def replay(self) -> None:
        self._replayed.append(self._graph)
        self._graph.replay()


class Noting:
    """A backend whose graphs are noted as they are replayed."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self.name, self.replayed = backend, backend.name, list[Graph]()

    def capture(self, function: Callable[[], tuple[Tensor, ...]], declared: Sequence[Tensor]) -> Graph:
        """Capture as the backend does."""
        return _Replayed(self._backend.capture(function, declared), self.replayed)


def main() -> None:
    """Measure, print a table, write JSON."""
    arguments = bench.parser(__doc__, "tiny", "batch", "repeats", "seed", *bench.KEPT).parse_args()
    given = setup(arguments.tiny, arguments.seed, tuple(arguments.batch) if arguments.batch else None)
    console, repeats = Console(), arguments.repeats or given.repeats
    with torch.inference_mode():
        dense = dense_model(given)
        drafts = {"eagle": eagle_draft(given, dense), "ngram": NGRAM}
        rows = []
        for name, draft in drafts.items():
            for batch in given.batches:
                with console.status(f"{name}, batch {batch}"):
                    rows.append({"draft": name, **decode(given, dense, draft, batch, repeats)})
    result = {**bench.machine(given.device), "seed": given.seed, "prompt": given.prompt, "steps": rows}
    bench.show(f"{result['device']}: a step of decode rounds", rows, COLUMNS, section=lambda row: row["draft"])
    seconds = {f"engine step, {row['draft']}, batch {row['batch']}": 1e-3 * row["step_ms"] for row in rows}
    bench.keep(arguments, result, seconds)


def decode(given: Setup, dense: Llama, draft: DraftModel, batch: int, repeats: int) -> dict[str, Any]:
    """Return what a step of a batch takes, what its graphs take, and its transfers."""
    noting = Noting(CudaBackend() if given.device == "cuda" else HostBackend())
    server = Server(given, dense, sizes(given, batch, given.prompt, given.new), draft, backend=noting)
    random = generator(given)
    steps, graphs, uploads, downloads = list[float](), list[float](), list[int](), list[int]()
    for repeat in range(repeats + 1):
        server.add(prompts(given, random, batch, given.prompt), given.new)
        number = 0
        while not server.idle:
            noting.replayed.clear()
            if repeat:
                step = server.step()
            else:
                with Transfers() as transfers:
                    step = server.step()
            number += 1
            if step.plan.prefill or len(step.plan.decode) < batch or number <= WARM:
                continue
            if repeat:
                steps.append(step.seconds)
                graphs.append(_alone(given, tuple(noting.replayed)))
            else:
                uploads.append(transfers.uploads)
                downloads.append(transfers.downloads)
    asked = [prompts(given, random, batch, given.prompt) for _ in range(repeats)]
    served = [statistics.fmean(step.seconds for step in server.rounds(texts, given.new)) for texts in asked]
    if not steps or not min(graphs):
        raise RuntimeError(f"no step of {batch} requests ran in graphs; there is nothing to time")
    # Not medians: where few rounds have drafts, those of steps and of graphs may be of different rounds.
    step_ms, graphs_ms, served_ms = (1e3 * statistics.fmean(times) for times in (steps, graphs, served))
    return {
        "batch": batch,
        "step_ms": step_ms,
        "graphs_ms": graphs_ms,
        "step_of_graphs": step_ms / graphs_ms,
        "served_ms": served_ms,
        "served_of_graphs": served_ms / graphs_ms,
        "uploads": statistics.mode(uploads),
        "downloads": statistics.mode(downloads),
    }


def _alone(given: Setup, replayed: tuple[Graph, ...]) -> float:
    """Return the seconds of the graphs of a step: what they write, the next step writes again, or never reads."""
    bench.synchronize(given.device)
    begin = time.perf_counter()
    for graph in replayed:
        graph.replay()
    bench.synchronize(given.device)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
