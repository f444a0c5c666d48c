"""Runs a kernel that reads as it is told, under the contract's watch; run as a program, where Triton is interpreted.

TRITON_INTERPRET=1 python reading.py   prints {case: null or [argument, offset]} as JSON
"""

import json
import sys

import torch
import triton
import triton.language as tl

from draftproof.properties.kernels.reads import WatchedReads

WIDTH = 5


@triton.jit
def _copy(p_out, p_x, width, first, BLOCK: tl.constexpr):
    """Copy a row; lanes from `first` to `width` read it, and what they read behind the row is thrown away."""
    o_x = first + tl.arange(0, BLOCK)
    b_x = tl.load(p_x + o_x, mask=o_x < width, other=0)
    tl.store(p_out + o_x, b_x, mask=(o_x >= 0) & (o_x < 5))


def reads(x: torch.Tensor, width: int = WIDTH, first: int = 0, *, is_made: bool = False) -> list[object] | None:
    """Return the argument and the offset of the first stray read of a launch."""
    out, given = torch.zeros(WIDTH, dtype=x.dtype), {"x": x}
    with WatchedReads() as watched:
        watched.given({"out": out, **({} if is_made else given)})
        _copy[(1,)](out, x, width, first, BLOCK=8)
    return [watched.stray.argument, watched.stray.offset] if watched.stray else None


def main() -> None:
    """Print what each launch reads astray."""
    pool, half = torch.arange(16), torch.arange(WIDTH, dtype=torch.float16)
    cases = {
        "a row": reads(pool[3:8]),
        "of 16 bits": reads(half),
        "behind the row": reads(pool[3:8], WIDTH + 1),
        "behind the last element": reads(pool[11:16], WIDTH + 1),
        "behind what is 16 bits wide": reads(half, WIDTH + 1),
        "before the row": reads(pool[3:8], first=-1),
        "between strided elements": reads(pool[::4]),
        "behind what the launcher made": reads(pool[:5].clone(), WIDTH + 1, is_made=True),
    }
    json.dump(cases, sys.stdout)


if __name__ == "__main__":
    main()
