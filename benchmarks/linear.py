"""Which cut of the narrow linear kernels is fastest on this GPU, beside torch's own linear layer."""

from __future__ import annotations

import itertools
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import timing
import torch

# O, I, keyword arguments of the launch: the projections of a Llama of 1B parameters.
CASES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "qkv": (3072, 2048, {"norm": True}),
    "out": (2048, 2048, {"add": True}),
    "gate_up": (16384, 2048, {"norm": True, "gated": True}),
    "down": (2048, 8192, {"add": True}),
    "lm_head": (128256, 2048, {}),
}
CUTS = tuple(itertools.product((2048, 4096, 8192, 16384, 32768), (2, 4, 8, 16)))
# Elements of weight that a thread holds: fewer leave memory idle, more spill.
PER_THREAD = (16, 128)
BYTES_IN_FLIGHT = 1 << 30


def linear(given: Namespace) -> Iterator[dict[str, Any]]:
    """Time the three fastest cuts of the narrow linear kernels, the default one, and torch's linear layer.

    Each is timed in a CUDA graph over several copies of the weight, more than fit in the cache. `T` tokens, `I` inputs,
    `O` outputs.
    """
    bandwidth = timing.copy_bandwidth("cuda", 1 << 32)
    for tokens in given.tokens or (1, 4):
        for name, (outputs, inputs, options) in CASES.items():
            weights = _weights(outputs, inputs)
            for cut, time in _best(weights, tokens, options):
                of_copy = weights[0].nbytes / time / bandwidth
                yield {"layer": name, "cut": cut, "tokens": tokens, "time_us": 1e6 * time, "of_copy": of_copy}


def _best(weights: list[torch.Tensor], tokens: int, options: dict[str, Any]) -> list[tuple[str, float]]:
    """Return cuts and torch's linear, in seconds per layer."""
    from draftproof.kernels.triton_linear import LaunchShape, launch

    outputs, inputs = weights[0].shape
    x = torch.randn(tokens, inputs, dtype=torch.bfloat16, device="cuda")
    out = torch.randn(tokens, outputs // (2 if options.get("gated") else 1), dtype=torch.bfloat16, device="cuda")
    kept = {**options, "norm": torch.ones_like(x[0]) if options.get("norm") else None, "eps": 1e-5}

    def seconds(run: Callable[[torch.Tensor], object]) -> float:
        return timing.launch_seconds("cuda", [partial(run, weight) for weight in weights], least=1)

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
    shape, count = (outputs, inputs), max(2, min(64, BYTES_IN_FLIGHT // (2 * outputs * inputs)))
    return [torch.randn(shape, dtype=torch.bfloat16, device="cuda") * inputs**-0.5 for _ in range(count)]
