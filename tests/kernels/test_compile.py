"""Every Triton kernel compiles for Hopper, without a GPU: the interpreter accepts more than the compiler does."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from draftproof import kernels
from draftproof.kernels import triton_linear
from tests import named

FOLDER = Path(kernels.__file__).parent


def launched_kernels() -> set[str]:
    """Return the functions that are jitted and named as kernels, from the sources."""
    functions = (
        node
        for path in FOLDER.glob("triton_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    )
    # What kernels call, and what is cached on the host, is not launched.
    jitted = {node.name for node in functions if "jit" in ast.unparse(node.decorator_list[0])}
    return {name for name in jitted if name.endswith("_kernel")} | {"_narrow_linear"}


def test_every_kernel_compiles_for_hopper(tmp_path: Path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    program = str(Path(__file__).with_name("compile.py"))
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["kernels"]) == launched_kernels()


MODES = {
    *("TREE", "TRACK", "NEW", "SNAPSHOT", "CODES", "WINDOWED", "SPLITS", "TAPS", "TOPK", "TO_POOL", "REWIND", "BITS"),
    *("p_k_pool", "p_v_pool", "p_pool", "p_rows", "p_logits", "p_best", "LOWEST"),
}
"""What makes a kernel another one: not the sizes of a probe, but what is asked of it, and dtypes."""


SIZES = (
    *("eagle_padded", "five_in_graphs", "mixed_eagle", "hybrid_snapshot", "sampled_hybrid_snapshot", "hybrid_replay"),
    *("tree_eagle", "tree_hybrid_replay", "tree_hybrid_snapshot", "sampled_eagle", "every_choice", "windowed"),
    *("drawn_drafts", "prefix_cached_hybrid", "codes_both"),
)
"""Scenarios of probes of other sizes, none beyond what the smallest kernels take: four heads of keys, 16 drafts."""


def test_probes_of_all_sizes_share_their_kernels():
    """Each other kernel is compiled in the first scenario that needs it, which takes longer than the scenario."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    program = str(Path(__file__).with_name("variants.py"))
    command = [sys.executable, program, *(str(named.FOLDER / f"{name}.json") for name in SIZES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    differing = json.loads(done.stdout)
    assert len(differing) > 15
    assert {kernel: names for kernel, names in differing.items() if set(names) - MODES} == {}


@pytest.mark.parametrize(("width", "fused"), [(24, False), (128, False), (129, True), (2048, True), (8192, True)])
def test_threads_that_hold_one_output_hold_the_same_bits(monkeypatch: pytest.MonkeyPatch, width: int, fused: bool):
    """A thread with one product must not fuse it with its first addition to another thread's (a race, on a GPU)."""
    launched: list[dict[str, object]] = []
    monkeypatch.setattr(triton_linear, "_narrow_linear", _AnyGrid(lambda *_, **options: launched.append(options)))
    x = torch.zeros(2, width)
    triton_linear.narrow_linear(torch.zeros(2, 3), x, torch.zeros(3, width))
    assert [one["enable_fp_fusion"] for one in launched] == [fused]


class _AnyGrid:
    def __init__(self, launch):
        self._launch = launch

    def __getitem__(self, grid):
        return self._launch
