"""Replay at the head sizes of real models, where it multiplies matrices; run as a program, in a process of its own.

TRITON_INTERPRET=1 python chunks.py   prints [[case, largest share of a head by which it differs], ..] as JSON
"""

import json
import sys
from collections.abc import Iterator

import torch

from draftproof import kernels
from draftproof.kernels import eager_replay

ROWS, KEYS, HEADS, TAPS = 3, 1, 2, 4
# Key size, value size, tokens a row: 8 pending and 8 new ones fill a chunk, 9 new ones go token by token.
SIZES = ((128, 128, 8), (128, 64, 5), (48, 80, 8), (128, 128, 9))
BOUNDS = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 0.02}
"""As benchmarks/gdn_cases.py has them: a head is wrong by its own size where a token is too many or too few.

In 16 bits a convolution that falls on the two sides of a rounding moves a key by a unit, and the state with it.
"""


def differences(device: str, dtype: torch.dtype) -> Iterator[tuple[str, float]]:
    """Yield each case, and by how much of a head the op on `device` differs from the eager one, at most."""
    for k_width, v_width, tokens in SIZES:
        for forgetting in (-2.0, 6.0):
            given = _buffers(dtype, k_width, v_width, tokens, forgetting)
            got = [tensor.to(device, copy=True) for tensor in given]
            kernels.gdn_replay(*got)
            eager_replay.gdn_replay(*given)
            share = max(_share(got[0].cpu(), given[0], 1), _share(got[1].cpu(), given[1], 2))
            kept = all(torch.equal(one.cpu(), must) for one, must in zip(got[2:4], given[2:4], strict=True))
            yield f"{dtype} {k_width} {v_width} {tokens} {forgetting}", share if kept else float("inf")


def _share(got: torch.Tensor, expected: torch.Tensor, inner: int) -> float:
    wide, size = ((one.double().flatten(-inner)).norm(dim=-1) for one in (got - expected, expected))
    return float((wide / size.clamp(min=1e-3)).max())


def _buffers(
    dtype: torch.dtype, k_width: int, v_width: int, tokens: int, forgetting: float
) -> tuple[torch.Tensor, ...]:
    """Return the arguments of gdn_replay: a row of 8 pending tokens, one of a few, one whose slot does not exist.

    With much `forgetting` decays come to 0.
    """
    generator = torch.Generator().manual_seed(tokens + k_width)
    channels, slots, allocated = 2 * KEYS * k_width + HEADS * v_width, ROWS + 1, max(8, tokens)

    def normal(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    return (
        torch.full((ROWS, tokens, HEADS, v_width), torch.nan, dtype=dtype),
        normal(slots, HEADS, k_width, v_width, dtype=torch.float32),
        normal(2, slots, TAPS - 1 + allocated, channels),
        normal(2, slots, allocated, 2, HEADS),
        normal(ROWS, tokens, channels),
        normal(ROWS, tokens, HEADS),
        normal(ROWS, tokens, HEADS),
        normal(channels, TAPS) * 0.5,
        torch.full((HEADS,), forgetting),
        torch.ones(HEADS),
        torch.tensor([[0, 0], [8, 0], [3, 1], [0, 1]]),
        torch.tensor([1, 3, slots])[:ROWS] if tokens % 2 else torch.tensor([2, 1, -1]),
    )


def main() -> None:
    """Print the differences of the interpreted kernels."""
    json.dump([each for dtype in (torch.float32, torch.float16) for each in differences("cpu", dtype)], sys.stdout)


if __name__ == "__main__":
    main()
