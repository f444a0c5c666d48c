"""The comparison of gated delta net kernels runs without any package, and says what it leaves out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_ours_are_measured_and_what_is_not_there_is_told(tmp_path):
    file = tmp_path / "result.json"
    command = [sys.executable, "-P", str(ROOT / "benchmarks" / "bench.py"), "gdn-packages", "--tiny"]
    environment = {"PATH": "/usr/bin", "PYTHONPATH": ":".join([str(ROOT / "benchmarks"), *sys.path])}
    ask = {"check": True, "capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run([*command, "--json", str(file)], env=environment, **ask)
    result = json.loads(file.read_text())
    ours = [row for row in result["rows"] if row["kernel"] == "draftproof"]
    assert [(row["op"], row["verdict"]) for row in ours] == [("gdn_update", "right"), ("gdn_verify", "right")] * 2
    assert all(row["cold_us"] > 0 for row in ours)
    assert done.stdout.count(" left out: ") == 3
