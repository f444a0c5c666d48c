"""The benchmark of how soon bugs are noticed counts scenarios and seconds, and refuses what is no bug."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from draftproof.properties.formats.measurement import history
from tests.warm import Warm

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
HARMLESS = """+++
source = "nowhere"
mechanism = "Nothing changes."
contract = "draft.match"
channel = "propose.match"
draft = "ngram"
+++
engine/drafts/ngram.py
-        return Match(*self._longest())
+        return Match(*tuple(self._longest()))
"""
RAISES = HARMLESS.replace("Match(*tuple(self._longest()))", "Match(*self._longest()[9:9], [][9])")
"""Noticed in the first scenario of any seed."""
SMALL = ("--every", "300", "--repeats", "2", "--scenarios", "3")


def run(warm: Warm, folder: Path, *options: str) -> Any:
    kept = [f"--{name}={folder / name}.json" for name in ("json", "history")]
    return warm.run([sys.executable, str(BENCHMARKS / "bench.py"), "notice", *SMALL, *kept, *options])


def test_what_is_noticed_and_what_never_is_is_counted(warm: Warm, tmp_path: Path):
    apart = tmp_path / "apart"
    apart.mkdir()
    (apart / "raises.fault").write_text(RAISES)
    (apart / "harmless.fault").write_text(HARMLESS)
    done = run(warm, tmp_path, "--apart", str(apart))
    assert done.returncode == 0, done.stderr
    known, other = json.loads((tmp_path / "json.json").read_text())["rows"]
    assert (known["set"], known["faults"], known["seeds"]) == ("known", 2, 2)
    assert (other["set"], other["faults"], other["noticed"]) == ("apart", 2, 2)
    assert "p90" not in other
    assert other["summary"].startswith("2 of 4 noticed: ")
    assert "90th percentile never" in other["summary"]
    (kept,) = history(tmp_path / "history.json")
    assert {name for name in kept.seconds if "known" in name} <= {"median, set known", "p90, set known"}


def test_a_folder_without_bugs_and_one_that_is_stale_are_refused(warm: Warm, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    done = run(warm, tmp_path, "--apart", str(tmp_path / "empty"))
    assert done.returncode != 0
    assert "invalid --apart" in done.stderr
    for name in ("one", "other"):
        (tmp_path / name / "mine").mkdir(parents=True)
        (tmp_path / name / "mine" / "harmless.fault").write_text(HARMLESS)
    done = run(warm, tmp_path, *(f"--apart={tmp_path / name / 'mine'}" for name in ("one", "other")))
    assert done.returncode != 0
    assert "invalid --apart: expected names that differ" in done.stderr
    (tmp_path / "stale").mkdir()
    (tmp_path / "stale" / "gone.fault").write_text(HARMLESS.replace("Match(*self._longest())", "Match(*gone)"))
    done = run(warm, tmp_path, "--apart", str(tmp_path / "stale"))
    assert done.returncode != 0
    assert "invalid fault gone: expected a mistake, it is stale" in done.stderr
