"""A kernel that writes where nothing is."""

import torch
import triton
import triton.language as tl


@triton.jit
def _store(pointer, distance):  # type: ignore[no-untyped-def]
    tl.store(pointer + distance, 1.0)


def illegal_access() -> None:
    """Launch it; the error shows at the next synchronisation, and in every later call of the process."""
    _store[(1,)](torch.zeros(1, device="cuda"), 1 << 44)
