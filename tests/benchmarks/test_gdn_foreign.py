"""The comparison of gated delta net kernels runs without any package, and says what it leaves out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_ours_are_measured_and_what_is_not_there_is_told(tmp_path):
    file = tmp_path / "result.json"
    command = [sys.executable, "-P", str(ROOT / "benchmarks" / "gdn_foreign.py"), "--tiny", "--device", "cpu"]
    environment = {"PATH": "/usr/bin", "PYTHONPATH": ":".join([str(ROOT / "benchmarks"), *sys.path])}
    subprocess.run([*command, "--json", str(file)], env=environment, check=True, capture_output=True, timeout=300)
    result = json.loads(file.read_text())
    ours = [row for row in result["rows"] if row["kernel"] == "draftproof"]
    assert [(row["op"], row["verdict"]) for row in ours] == [("gdn_update", "right"), ("gdn_verify", "right")] * 2
    assert all(row["cold"] > 0 for row in ours)
    assert len(result["left_out"]) == 3
