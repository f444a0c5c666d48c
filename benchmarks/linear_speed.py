"""Which cut of the narrow linear kernels is fastest on this GPU, beside torch's own linear layer.

Each case is timed in a CUDA graph over several copies of the weight, more than fit in the cache. Prints the fraction
of copy bandwidth that each reaches. `T` tokens, `I` inputs, `O` outputs.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

# name, O, I, keyword arguments of the launch: the projections of a Llama of 1B parameters.
CASES: tuple[tuple[str, int, int, dict[str, Any]], ...] = (
    ("qkv", 3072, 2048, {"norm": True}),
    ("out", 2048, 2048, {"add": True}),
    ("gate_up", 16384, 2048, {"norm": True, "gated": True}),
    ("down", 2048, 8192, {"add": True}),
    ("lm_head", 128256, 2048, {}),
)
CUTS = tuple(itertools.product((2048, 4096, 8192, 16384, 32768), (2, 4, 8, 16)))
# Elements of weight that a thread holds: fewer leave memory idle, more spill.
PER_THREAD = (16, 128)
BYTES_IN_FLIGHT = 1 << 30


def main() -> None:
    """Print one table per number of tokens."""
    console = Console()
    bandwidth = _copy_bandwidth()
    for tokens in (1, 4):
        table = Table(title=f"{tokens} tokens, copy bandwidth {bandwidth / 1e12:.2f} TB/s")
        for column in ("layer", "cut", "us", "of copy bandwidth"):
            table.add_column(column)
        for name, outputs, inputs, options in CASES:
            weights = _weights(outputs, inputs)
            for label, time in _best(weights, tokens, options):
                share = weights[0].nbytes / time / bandwidth
                table.add_row(name, label, f"{1e6 * time:.2f}", f"{100 * share:.1f} %")
        console.print(table)


def _best(weights: list[torch.Tensor], tokens: int, options: dict[str, Any]) -> list[tuple[str, float]]:
    """The three fastest cuts, the default one and torch's linear, in seconds per layer."""
    from draftproof.kernels.triton_linear import Shape, launch

    outputs, inputs = weights[0].shape
    x = torch.randn(tokens, inputs, dtype=torch.bfloat16, device="cuda")
    out = torch.randn(tokens, outputs // (2 if options.get("gated") else 1), dtype=torch.bfloat16, device="cuda")
    kept = {**options, "norm": torch.ones_like(x[0]) if options.get("norm") else None, "eps": 1e-5}

    def run(shape: Shape | None) -> Callable[[torch.Tensor], None]:
        return lambda weight: launch(out, x, weight, shape=shape, **kept)

    times = []
    for elements, warps in CUTS:
        if PER_THREAD[0] <= elements // (32 * warps) <= PER_THREAD[1] and elements >= inputs:
            times.append((f"{elements} elements, {warps} warps", _graph_time(run(Shape(elements, warps)), weights)))
    whole = torch.empty(tokens, outputs, dtype=torch.bfloat16, device="cuda")
    fixed = [
        ("default", _graph_time(run(None), weights)),
        ("torch", _graph_time(lambda weight: torch.mm(x, weight.t(), out=whole), weights)),
    ]
    return sorted(times, key=lambda item: item[1])[:3] + fixed


def _graph_time(run: Callable[[torch.Tensor], object], weights: list[torch.Tensor]) -> float:
    """Median seconds of one call, over replays of a graph that calls it once for each weight."""
    for weight in weights:
        run(weight)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for weight in weights:
            run(weight)
    return _event_time(graph.replay) / len(weights)


def _event_time(run: Callable[[], object], repeats: int = 7) -> float:
    times = []
    for _ in range(repeats + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(1e-3 * begin.elapsed_time(end))
    return statistics.median(times[2:])


def _weights(outputs: int, inputs: int) -> list[torch.Tensor]:
    count = max(2, BYTES_IN_FLIGHT // (2 * outputs * inputs))
    return [
        torch.randn(outputs, inputs, dtype=torch.bfloat16, device="cuda") * inputs**-0.5 for _ in range(min(count, 64))
    ]


def _copy_bandwidth() -> float:
    source = torch.randint(0, 255, (1 << 32,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / _event_time(lambda: target.copy_(source))


if __name__ == "__main__":
    main()
