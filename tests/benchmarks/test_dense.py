"""The benchmarks run: on a CPU, at a size that takes seconds."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def benchmark(name: str, *arguments: str) -> str:
    command = [sys.executable, str(ROOT / "benchmarks" / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_decode_speed(tmp_path: Path) -> None:
    benchmark("decode_speed.py", "--tiny", "--json", str(tmp_path / "speed.json"))
    result = json.loads((tmp_path / "speed.json").read_text())
    assert [row["batch"] for row in result["batches"]] == [1, 3]
    for row in result["batches"]:
        assert row["logits_difference"] < 1e-5
        assert abs(row["of_floor"] * row["engine_ms"] - result["floor_ms"]) < 1e-9


def test_decode_profile() -> None:
    assert "draftproof::paged_attention" in benchmark("decode_speed.py", "--tiny", "--profile")


def test_throughput(tmp_path: Path) -> None:
    benchmark("throughput.py", "--scenarios", "2", "--seed", "5", "--json", str(tmp_path / "rate.json"))
    result = json.loads((tmp_path / "rate.json").read_text())
    assert (result["scenarios"], result["seed"]) == (2, 5)
    assert abs(sum(result["share"].values()) - 1) < 1e-9
