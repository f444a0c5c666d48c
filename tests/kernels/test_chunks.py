"""Replay as products of matrices agrees with the eager function at the head sizes of real models."""

import json
import sys
from pathlib import Path

import pytest
import torch

from tests.kernels import chunks
from tests.warm import Warm


def test_interpreted_chunks_agree(warm: Warm):
    done = warm.run([sys.executable, str(Path(chunks.__file__))], TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    found = dict(json.loads(done.stdout))
    assert len(found) == 2 * 2 * len(chunks.SIZES)
    bounds = {str(dtype): bound for dtype, bound in chunks.BOUNDS.items()}
    assert {case: share for case, share in found.items() if not share < bounds[case.split()[0]]} == {}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: run by make test-gpu on a GPU machine")
@pytest.mark.parametrize("dtype", chunks.BOUNDS)
def test_chunks_agree(dtype: torch.dtype):
    assert {case: share for case, share in chunks.differences("cuda", dtype) if not share < chunks.BOUNDS[dtype]} == {}
