"""An operation of ours whose implementation does on the host what no captured function may."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.library import Library


def _accumulate(source: Tensor, out: Tensor) -> None:
    """out += source in numpy, with host reads on the way."""
    assert source.tolist() is not None
    assert source.sum().item() is not None
    out.numpy()[...] += source.cpu().numpy()


@pytest.fixture(scope="session")
def accumulate() -> Iterator[torch._ops.OpOverloadPacket]:
    """torch op (source, out!) -> (): out += source."""
    library = Library("draftproof_graph_tests", "DEF")
    library.define("accumulate(Tensor source, Tensor(a!) out) -> ()")
    library.impl("accumulate", _accumulate, "CPU")
    yield torch.ops.draftproof_graph_tests.accumulate
    library._destroy()
