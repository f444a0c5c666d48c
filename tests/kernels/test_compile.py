"""Every Triton kernel compiles for Hopper, without a GPU: the interpreter accepts more than the compiler does."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

from draftproof import kernels

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
