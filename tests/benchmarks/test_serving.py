"""The benchmarks of verifies and of the scheduler run, and measure what they name."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from draftproof.properties.values.measurement import history
from tests.warm import Warm

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def measured(warm: Warm, folder: Path, name: str, *options: str) -> dict[str, Any]:
    arguments = ["--tiny", *options, "--json", str(folder / f"{name}.json")]
    done = warm.run([sys.executable, str(BENCHMARKS / f"{name}.py"), *arguments])
    assert done.returncode == 0, done.stderr
    return json.loads((folder / f"{name}.json").read_text())


def test_a_prefix_is_served_and_requests_give_way(warm: Warm, tmp_path: Path):
    result = measured(warm, tmp_path, "serve_speed", "--repeats", "2", "--history", str(tmp_path / "history.jsonl"))
    (run,) = history(tmp_path / "history.jsonl")
    assert (len(run.seconds), run.seconds["hit, prompt 48"]) == (6, result["prefixes"][0]["hit_ms"] / 1e3)
    assert [(row["prompt"], row["served"]) for row in result["prefixes"]] == [(48, 32), (96, 80)]
    for row in result["prefixes"]:
        assert row["recompute_of_hit"] == pytest.approx(row["recompute_ms"] / row["hit_ms"])
    (row,) = result["preemption"]
    assert row["preempted"] > 0
    assert row["resume_of_round"] == pytest.approx(row["resume_ms"] / row["round_ms"])


def test_verifies_of_trees_and_of_sampled_requests_are_timed_beside_greedy_chains(warm: Warm, tmp_path: Path):
    result = measured(warm, tmp_path, "verify_speed")
    assert [row["batch"] for row in result["batches"]] == [1, 3]
    for row in result["batches"]:
        assert row["tree_of_chain"] == pytest.approx(row["tree_ms"] / row["chain_ms"])
        assert row["sampled_of_greedy"] == pytest.approx(row["sampled_chain_ms"] / row["chain_ms"])
