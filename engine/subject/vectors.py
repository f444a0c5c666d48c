"""Tensors as vectors of a trace."""

from __future__ import annotations

import torch
from torch import Tensor

from draftproof.properties.values.observed import Vector


def vectors(tensor: Tensor) -> list[Vector]:
    """Rows of a [R, ..] tensor as trace vectors: bytes of integers, or float64 arrays."""
    flat = tensor.detach().reshape(tensor.shape[0], -1).cpu()
    if flat.dtype == torch.int64:
        return [row.tobytes() for row in flat.numpy()]
    array = flat.to(torch.float64).numpy().copy()
    array.setflags(write=False)
    return list(array)
