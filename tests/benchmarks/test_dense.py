"""The benchmarks run: on a CPU, at a size that takes seconds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from draftproof.properties.formats.measurement import history
from tests.warm import Warm

ROOT = Path(__file__).resolve().parents[2]


def bench(warm: Warm, *arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run([sys.executable, str(ROOT / "benchmarks" / "bench.py"), *arguments])


def benchmark(warm: Warm, *arguments: str) -> str:
    done = bench(warm, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_decode_speed(warm: Warm, tmp_path: Path) -> None:
    kept = ["--json", str(tmp_path / "speed.json"), "--history", str(tmp_path / "history.jsonl")]
    said = benchmark(warm, "decode", "--tiny", *kept)
    result = json.loads((tmp_path / "speed.json").read_text())
    assert (result["kind"], result["device"], result["options"]) == ("decode", "cpu", ["seed 1", "tiny True"])
    assert [row["batch"] for row in result["rows"]] == [1, 3]
    for row in result["rows"]:
        assert row["logits_difference"] < 1e-5
        assert abs(row["floor_of_engine"] * row["engine_ms"] - row["floor_ms"]) < 1e-9
        assert abs(row["floor_of_graph"] * row["graph_ms"] - row["floor_ms"]) < 1e-9
        assert f"{row['engine_ms']:.4g}" in said
    (run,) = history(tmp_path / "history.jsonl")
    parts = ("engine", "graph", "transformers", "floor")
    assert list(run.seconds) == [f"{part}, batch {batch}" for batch in (1, 3) for part in parts]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--tiny --batch 0", "argument --batch: invalid '0': expected a whole number of at least 1"),
        ("--tiny --batch some", "invalid 'some': expected a whole number of at least 1"),
        ("--tiny --repeats 0", "argument --repeats: invalid '0'"),
        ("--tiny --seed -1", "argument --seed: invalid '-1': expected a whole number of at least 0"),
        ("--tiny --json /proc/x.json", "argument --json: invalid '/proc/x.json': it cannot be written"),
        ("--tiny --history /tmp", "argument --history: invalid '/tmp': it cannot be written: Is a directory"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_measured(warm: Warm, options: str, expected: str) -> None:
    done = bench(warm, "step", *options.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
@pytest.mark.parametrize(
    ("name", "cpu"),
    [
        ("decode", ", or --tiny, which runs on a CPU"),
        ("gdn", ", or --tiny, which runs on a CPU"),
        ("linear", ""),
    ],
)
def test_a_benchmark_says_that_it_needs_a_gpu(warm: Warm, name: str, cpu: str) -> None:
    done = bench(warm, name)
    assert done.returncode == 2
    assert f"torch sees no CUDA device here: expected one{cpu}" in done.stderr


def test_sizes_of_a_gpu_are_refused_on_a_cpu(warm: Warm) -> None:
    done = bench(warm, "gdn", "--device", "cpu")
    assert done.returncode == 2
    assert "invalid --device cpu without --tiny: expected both" in done.stderr


def test_an_unknown_kind_is_told_the_others(warm: Warm) -> None:
    done = bench(warm, "speed")
    assert done.returncode == 2
    assert "invalid choice: 'speed' (choose from 'decode', 'profile', 'step'" in done.stderr


def test_decode_profile(warm: Warm) -> None:
    assert "draftproof::paged_attention" in benchmark(warm, "profile", "--tiny")


def test_verify_speed(warm: Warm, tmp_path: Path) -> None:
    kept = ["--json", str(tmp_path / "verify.json"), "--history", str(tmp_path / "history.jsonl")]
    benchmark(warm, "verify", "--tiny", "--batch", "2", *kept)
    result = json.loads((tmp_path / "verify.json").read_text())
    (row,) = result["rows"]
    assert row["batch"] == 2
    assert row["tree_of_chain"] == row["tree_ms"] / row["chain_ms"]
    assert row["sampled_of_greedy"] == row["sampled_chain_ms"] / row["chain_ms"]
    (run,) = history(tmp_path / "history.jsonl")
    assert len(run.seconds) == 6
    assert run.seconds["tree, batch 2"] == row["tree_ms"] / 1e3


def test_scenarios_are_timed_by_parts(warm: Warm, tmp_path: Path) -> None:
    kept, options = tmp_path / "history.jsonl", ["--scenarios", "5", "--seed", "5", "--label", "mine"]
    benchmark(warm, "scenarios", *options, "--json", str(tmp_path / "rate.json"), "--history", str(kept))
    rows = {row["part"]: row for row in json.loads((tmp_path / "rate.json").read_text())["rows"]}
    assert rows.keys() >= {"generate", "engine", "engine: record", "reference: solve", "judge", "all"}
    # Of scenarios with ranks other processes run the engine.
    assert rows["engine"]["calls"] > 0
    assert sum(row["calls"] for part, row in rows.items() if part in ("engine", "ranks: messages")) >= 1
    assert abs(sum(row["share"] for row in rows.values()) - 2) < 1e-9
    (run,) = history(kept)
    assert (run.benchmark, run.label, run.options) == ("scenarios", "mine", ("scenarios 5", "seed 5"))
    assert list(run.seconds.values()) == [pytest.approx(row["each_ms"] / 1e3) for row in rows.values()]
    assert run.seconds["each, part all"] == max(run.seconds.values())
    assert run.versions["torch"] == torch.__version__
