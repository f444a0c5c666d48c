"""The Triton sources under the interpreter, in one process that has TRITON_INTERPRET set before Triton is imported.

float32, float16 and the ring: the interpreter computes bfloat16 on its bit patterns.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from draftproof import kernels
from draftproof.properties.kernels.table import OPS

LANE = Path(__file__).with_name("lane.py")
EXAMPLES = 8


@pytest.fixture(scope="module")
def lane() -> dict:
    """Return what the subprocess printed."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(LANE), str(EXAMPLES)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_process_was_interpreted(lane: dict):
    assert lane["implementation"] == "interpreted"


def test_every_launch_went_to_a_triton_source(lane: dict):
    """A launcher that leads to the eager function would pass every contract."""
    assert lane["sources"] == sorted(path.stem for path in Path(kernels.__file__).parent.glob("triton_*.py"))


@pytest.mark.parametrize("op", OPS)
def test_every_contract_holds(lane: dict, op: str):
    seen = lane["ops"][op]
    assert seen["differences"] == []
    assert seen["examples"] >= EXAMPLES // 2
    assert seen["changed"] > 0


@pytest.mark.parametrize("op", [op for op in OPS if OPS[op].has_large])
def test_every_contract_holds_where_a_kernel_splits_into_blocks(lane: dict, op: str):
    seen = lane["large"][op]
    assert seen["differences"] == []
    assert seen["examples"] > 0
