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
        [sys.executable, str(BENCHMARKS / "bench.py"), "campaign", *size, "--run", str(run), "--json", str(kept)]
    )
    assert done.returncode == 0, done.stderr
    rows = {row["what"]: row for row in json.loads(kept.read_text())["rows"]}
    end, start, report = (rows[what] for what in ("in the end", "draftproof --help", "draftproof report"))
    assert end["scenarios"] >= 300
    assert end["findings"] == 3
    assert [row["wall_s"] for row in rows.values() if "wall_s" in row][-1] > 0
    assert 0 < report["taken_s"] < 30
    assert report["page_mb"] == (run / "report.html").stat().st_size / 1e6
    assert 0 < start["peak_mb"] < report["peak_mb"] < end["peak_mb"]
    with closing(sqlite3.connect(run / "results.sqlite")) as db:
        texts = {number for (number,) in db.execute("SELECT number FROM texts")}
        needed = {number for (number,) in db.execute("SELECT number FROM scenarios WHERE state = 'queued'")}
        needed |= {number for (number,) in db.execute("SELECT first FROM findings")}
    assert texts <= needed, "scenarios that nobody needs are let go of"
