"""The benchmark of long campaigns runs one, and measures what it names."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from tests.warm import Warm

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_a_campaign_is_run_and_measured(warm: Warm, tmp_path: Path):
    kept, run = tmp_path / "long.json", tmp_path / "run"
    size = ["--scenarios", "300", "--templates", "4", "--fail-every", "30", "--findings", "3"]
    done = warm.run(
        [sys.executable, str(BENCHMARKS / "long_campaign.py"), *size, "--run", str(run), "--json", str(kept)]
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(kept.read_text())
    assert result["tables"]["scenarios"] >= 300
    assert result["tables"]["findings"] == 3
    assert [row["scenarios"] for row in result["growth"]] == sorted(row["scenarios"] for row in result["growth"])
    assert 0 < result["report_seconds"] < 30
    assert result["report_bytes"] == (run / "report.html").stat().st_size
    assert 0 < result["start_peak_bytes"] < result["report_peak_bytes"] < result["peak_bytes"]
    with closing(sqlite3.connect(run / "results.sqlite")) as db:
        texts = {number for (number,) in db.execute("SELECT number FROM texts")}
        needed = {number for (number,) in db.execute("SELECT number FROM scenarios WHERE state = 'queued'")}
        needed |= {number for (number,) in db.execute("SELECT first FROM findings")}
    assert texts <= needed, "scenarios that nobody needs are let go of"
