"""Nothing is timed that is wrong: every op beside the eager one on a CPU, on the same inputs.

Letters as in gdn_buffers. Values are compared by the norm of the difference over the norm of what is expected, for each
head of each row by itself, so that one wrong head shows; what is only moved, and heads that the eager op leaves as they
are, must be equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bench
import torch
from gdn_buffers import Buffers, Setup, buffers
from gdn_cases import FLA, OPS, fla_launch, run

# A bf16 has 8 bits: one rounding is up to 0.004 of a value. A token too many or too few changes a head by its own size.
# Of every field with float arithmetic: the bound, and how many dimensions a head has.
BOUNDS = {"qkv": (0.02, 1), "out": (0.02, 1), "states": (0.01, 2), "ssm": (0.01, 2)}
CHECKED = ("snapshot round", "replay round", "gdn_update")


def check(given: Setup, batch: int, tokens: int, fla: Callable[..., Any] | None) -> None:
    """Raise RuntimeError, naming what differs, unless all ops agree for this batch and width."""
    for seed, name in enumerate(CHECKED, start=given.seed):
        on = buffers(given, batch, tokens, seed)
        theirs = fla_launch(given, on, fla)() if fla and name == "gdn_update" else ()
        for launch in OPS[name]:
            before, expected = on.cpu(), on.cpu()
            run(launch, on)
            run(launch, expected, torch.ops.draftproof)
            _compare_all(launch[0], on, expected, before)
        for field, got, must in zip(
            ("out", "states"), theirs, (expected.out, expected.ssm[expected.slots]), strict=False
        ):
            _compare(f"{field} of {FLA}", got.cpu(), must, torch.full_like(must, torch.nan), *BOUNDS[field])


def _compare_all(op: str, on: Buffers, expected: Buffers, before: Buffers) -> None:
    got = on.cpu()
    for field, must in vars(expected).items():
        _compare(f"{field} after {op}", getattr(got, field), must, getattr(before, field), *BOUNDS.get(field, (0.0, 1)))


def _compare(
    name: str, got: torch.Tensor, expected: torch.Tensor, before: torch.Tensor, bound: float, inner: int
) -> None:
    """Compare the last `inner` dimensions at a time; a bound of 0 wants equal bits, as does what stays as before."""

    def heads(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.flatten(-inner)

    wrong = heads(bench.bits(got) != bench.bits(expected)).any(-1)
    kept = heads(bench.bits(before) == bench.bits(expected)).all(-1)
    share = heads(got.float() - expected.float()).norm(dim=-1) / heads(expected.float()).norm(dim=-1)
    bad = (wrong & (kept | ~(share < bound))).nonzero()
    if len(bad):
        at = tuple(bad[0].tolist())
        raise RuntimeError(
            f"{name} differs at {at} by {share[at]:.3g} of its size; allowed: {bound}; speed means nothing"
        )
