"""Tensors that tests of graphs use, and how poisoned ones are known."""

import torch
from torch import Tensor

from draftproof.engine.graphs.record import POISON_BYTE

POISON_WORD = int.from_bytes(bytes([POISON_BYTE]) * 8, "little", signed=True)


def ints(*shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape) + 1


def assert_poisoned(tensor: Tensor) -> None:
    assert tensor.numel() > 0
    assert tensor.view(torch.int64).eq(POISON_WORD).all()
