"""Numpy views of CPU tensors: a numpy call costs a fraction of a torch call at the sizes that probes have."""

import numpy as np
import torch
from torch import Tensor

_FEW = 64
_WORDS = {torch.bfloat16: torch.int16}


def words(tensor: Tensor) -> np.ndarray:
    """Return a view for moving values unchanged; a dtype that numpy lacks is seen as an integer of its size."""
    other = _WORDS.get(tensor.dtype)
    return tensor.numpy() if other is None else tensor.view(other).numpy()


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which arithmetic on floats of `dtype` is done."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def in_range(index: np.ndarray, size: int) -> np.ndarray | None:
    """Return which entries of a vector lie in [0, size), or None where all do."""
    # For a few indices Python's own numbers are faster.
    if len(index) <= _FEW:
        values = index.tolist()
        if not values or (min(values) >= 0 and max(values) < size):
            return None
    inside = index.view(np.uint64) < size
    return None if inside.all() else inside
