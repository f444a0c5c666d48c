"""Which cut of the narrow linear kernels is fastest on this GPU, beside torch's own linear layer.

Each case is timed in a CUDA graph over several copies of the weight, more than fit in the cache. Prints the fraction
of copy bandwidth that each reaches. `T` tokens, `I` inputs, `O` outputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import bench
import torch

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
COLUMNS: dict[str, Callable[[tuple[str, str, float, float]], object]] = {
    "layer": lambda row: row[0],
    "cut": lambda row: row[1],
    "us": lambda row: f"{1e6 * row[2]:.2f}",
    "of copy bandwidth": lambda row: f"{100 * row[3]:.1f} %",
}


def main() -> None:
    """Print one table per number of tokens."""
    parser = bench.parser(__doc__, "tokens")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("torch sees no CUDA device here: expected one")
    bandwidth = bench.copy_bandwidth("cuda", 1 << 32)
    result = []
    for tokens in arguments.tokens or (1, 4):
        rows = []
        for name, outputs, inputs, options in CASES:
            weights = _weights(outputs, inputs)
            for cut, time in _best(weights, tokens, options):
                rows.append((name, cut, time, weights[0].nbytes / time / bandwidth))
        bench.show(f"{tokens} tokens, copy bandwidth {bandwidth / 1e12:.2f} TB/s", rows, COLUMNS, left=("layer", "cut"))
        names = ("layer", "cut", "seconds", "of_copy")
        result += [{"tokens": tokens, **dict(zip(names, row, strict=True))} for row in rows]
    bench.write(arguments.json, {**bench.machine("cuda"), "rows": result})


def _best(weights: list[torch.Tensor], tokens: int, options: dict[str, Any]) -> list[tuple[str, float]]:
    """Return the three fastest cuts, the default one and torch's linear, in seconds per layer."""
    from draftproof.kernels.triton_linear import LaunchShape, launch

    outputs, inputs = weights[0].shape
    x = torch.randn(tokens, inputs, dtype=torch.bfloat16, device="cuda")
    out = torch.randn(tokens, outputs // (2 if options.get("gated") else 1), dtype=torch.bfloat16, device="cuda")
    kept = {**options, "norm": torch.ones_like(x[0]) if options.get("norm") else None, "eps": 1e-5}

    def seconds(run: Callable[[torch.Tensor], object]) -> float:
        return bench.launch_seconds("cuda", [partial(run, weight) for weight in weights], least=1)

    def of(shape: LaunchShape | None) -> float:
        return seconds(lambda weight: launch(out, x, weight, shape=shape, **kept))

    times = []
    for elements, warps in CUTS:
        if PER_THREAD[0] <= elements // (32 * warps) <= PER_THREAD[1] and elements >= inputs:
            times.append((f"{elements} elements, {warps} warps", of(LaunchShape(elements, warps))))
    whole = torch.empty(tokens, outputs, dtype=torch.bfloat16, device="cuda")
    fixed = [("default", of(None)), ("torch", seconds(lambda weight: torch.mm(x, weight.t(), out=whole)))]
    return sorted(times, key=lambda item: item[1])[:3] + fixed


def _weights(outputs: int, inputs: int) -> list[torch.Tensor]:
    count = max(2, BYTES_IN_FLIGHT // (2 * outputs * inputs))
    return [
        torch.randn(outputs, inputs, dtype=torch.bfloat16, device="cuda") * inputs**-0.5 for _ in range(min(count, 64))
    ]


if __name__ == "__main__":
    main()
