"""What compute-sanitizer prints is read, grouped and held to the list of explained reports."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from tests.warm import Warm

HERE = Path(__file__).resolve().parent
_SPEC = importlib.util.spec_from_file_location("draftproof_sanitize", HERE / "sanitize.py")
assert _SPEC is not None
assert _SPEC.loader is not None
sanitize = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = sanitize
_SPEC.loader.exec_module(sanitize)

MEMCHECK = """========= COMPUTE-SANITIZER
gdn_verify: PASS
========= Invalid __global__ write of size 4 bytes
=========     at _gdn_kernel+0x1f0 in /repo/kernels/triton_gdn.py:73
=========     by thread (0,0,0) in block (1,0,0)
=========     Access at 0x7f is out of bounds
========= Invalid __global__ write of size 4 bytes
=========     at 0x2f0 in /repo/kernels/triton_gdn.py:73:_gdn_kernel
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """========= Error: Race reported between Write access at _narrow_linear+0x5d0 in /repo/triton_linear.py:60
=========     and Write access at _narrow_linear+0x5d0 in /repo/triton_linear.py:60 [16 hazards]
=========
========= Warning: Race reported between Read access at other(float *, int)+0x10
=========     and Write access at other(float *, int)+0x40 [4 hazards]
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
INITCHECK = """========= Uninitialized __global__ memory read of size 8 bytes
=========     at expand_kernel+0x80 in /wheel/vllm/v1/sample/rejection_sampler.py:970
========= Uninitialized __global__ memory read of size 2 bytes
"""


def test_reports_are_grouped_by_kernel_and_kind():
    assert sanitize.reports("memcheck", MEMCHECK) == {("memcheck", "_gdn_kernel", "Invalid __global__ write"): 2}
    assert sanitize.reports("racecheck", RACECHECK) == {
        ("racecheck", "_narrow_linear", "race of Write and Write"): 1,
        ("racecheck", "other", "race of Read and Write"): 1,
    }
    assert sanitize.reports("initcheck", INITCHECK) == {
        ("initcheck", "expand_kernel", "Uninitialized __global__ memory read"): 1,
        ("initcheck", "?", "Uninitialized __global__ memory read"): 1,
    }
    assert sanitize.reports("memcheck", "gdn_verify: PASS\n========= ERROR SUMMARY: 0 errors\n") == {}


def test_only_what_is_listed_with_a_reason_is_explained(tmp_path):
    listed = tmp_path / "explained.toml"
    entry = 'tool = "racecheck"\nkernel = "_narrow_linear"\nkind = "race of Write and Write"\nreason = "equal"\n'
    listed.write_text(f"[[report]]\n{entry}")
    reasons = sanitize.explained(listed)
    seen = sanitize.reports("racecheck", RACECHECK)
    unexplained, idle = sanitize.judged(seen, reasons)
    assert (unexplained, idle) == ([("racecheck", "other", "race of Read and Write")], [])
    assert sanitize.judged({}, reasons)[1] == list(reasons)
    assert all(reason for reason in sanitize.explained().values())


def test_contracts_run_and_a_missing_sanitizer_is_told(tmp_path, warm: Warm):
    def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", str(HERE / script), *words]
        return warm.run(command, PATH="/nowhere", PYTHONPATH=":".join(sys.path))

    done = run("sanitized.py", "--device", "cpu", "--examples", "2", "--only", "replay_commit")
    assert (done.returncode, done.stdout) == (0, "replay_commit: PASS\n")
    if not Path("/usr/local/cuda/bin/compute-sanitizer").exists():
        done = run("sanitize.py", "--logs", str(tmp_path))
        assert (done.returncode, "compute-sanitizer is not installed" in done.stdout) == (125, True)
