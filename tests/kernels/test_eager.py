"""The eager implementations, in this process, held to every contract."""

import subprocess
import sys

import pytest
import torch

from draftproof.kernels.registry import implementation
from draftproof.properties.strategies.kernels import CASES
from tests.kernels.lane import tally

FLOATS = (torch.float32, torch.bfloat16, torch.float64)


@pytest.mark.parametrize("op", CASES)
def test_every_contract_holds(op: str):
    seen = tally(op, FLOATS, examples=40)
    assert seen.differences == []
    assert seen.examples >= 20
    assert seen.changed >= seen.examples // 3


def test_this_process_is_eager_and_never_imports_triton():
    assert implementation() == "eager"
    assert implementation("cuda") == "cuda"
    program = (
        "import sys, torch, draftproof.kernels as k\n"
        "out = torch.zeros(2, dtype=torch.int64)\n"
        "k.ring_mix(out, torch.arange(2), 1)\n"
        "assert out.all()\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'triton'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
