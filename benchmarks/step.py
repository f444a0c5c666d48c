"""A decode step beside the graphs that it replays."""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import timing
from decode_model import Setup, setup
from server import NGRAM, Server, dense_model, eagle_draft, generator, prompts, sizes
from torch import Tensor
from transfers import Transfers

from draftproof.engine.drafts.base import DraftModel
from draftproof.engine.graphs.backend import Backend, Graph
from draftproof.engine.graphs.cuda import CudaBackend
from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.models.llama import Llama

WARM = 3


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


def step(given: Namespace) -> Iterator[dict[str, Any]]:
    """Time a decode step beside its graphs, with drafts of an EAGLE head or of n-grams: the rest is the host's.

    The target is that of `decode`. "step" is the mean `Engine.step` of rounds alone, from an idle device to an idle
    device: planning, inputs, graphs, results. "graphs" are those of the same step, replayed one behind the other with
    nothing in between. "served" is a step of the same texts, one behind the other to their ends: what the host does
    after it has launched the last graph of a step and before it needs the device again costs nothing then. "uploads"
    are tensors that the step makes of numbers on the host, "downloads" how often it reads numbers back, each in most
    steps. On a CPU a graph runs its operations one by one.
    """
    of = setup(given)
    dense = dense_model(of)
    for name, draft in {"eagle": eagle_draft(of, dense), "ngram": NGRAM}.items():
        for batch in of.batches:
            yield {"draft": name, **_measured(of, dense, draft, batch)}


def _measured(given: Setup, dense: Llama, draft: DraftModel, batch: int) -> dict[str, Any]:
    """Return what a step of a batch takes, what its graphs take, and its transfers."""
    noting = Noting(CudaBackend() if given.device == "cuda" else HostBackend())
    server = Server(given, dense, sizes(given, batch, given.prompt, given.new), draft, backend=noting)
    random = generator(given)
    steps, graphs, uploads, downloads = list[float](), list[float](), list[int](), list[int]()
    for repeat in range(given.repeats + 1):
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
    asked = [prompts(given, random, batch, given.prompt) for _ in range(given.repeats)]
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
    timing.synchronize(given.device)
    begin = time.perf_counter()
    for graph in replayed:
        graph.replay()
    timing.synchronize(given.device)
    return time.perf_counter() - begin
