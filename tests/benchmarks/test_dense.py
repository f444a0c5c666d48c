"""The benchmarks run: on a CPU, at a size that takes seconds."""

import json
import sys
from pathlib import Path

import pytest
import torch

from draftproof.properties.values.measurement import history
from tests.warm import Warm

ROOT = Path(__file__).resolve().parents[2]


def benchmark(warm: Warm, name: str, *arguments: str) -> str:
    command = [sys.executable, str(ROOT / "benchmarks" / name), *arguments]
    done = warm.run(command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_decode_speed(warm: Warm, tmp_path: Path) -> None:
    kept = ["--json", str(tmp_path / "speed.json"), "--history", str(tmp_path / "history.jsonl")]
    benchmark(warm, "decode_speed.py", "--tiny", *kept)
    result = json.loads((tmp_path / "speed.json").read_text())
    assert [row["batch"] for row in result["batches"]] == [1, 3]
    for row in result["batches"]:
        assert row["logits_difference"] < 1e-5
        assert abs(row["of_floor"] * row["engine_ms"] - result["floor_ms"]) < 1e-9
        assert abs(row["graph_of_floor"] * row["graph_ms"] - result["floor_ms"]) < 1e-9
    (run,) = history(tmp_path / "history.jsonl")
    assert list(run.seconds) == [f"decode {part}, batch {batch}" for batch in (1, 3) for part in ("step", "graph")]


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
    done = warm.run([sys.executable, str(ROOT / "benchmarks" / "step_speed.py"), *options.split()])
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
@pytest.mark.parametrize(
    ("name", "cpu"),
    [
        ("decode_speed.py", ", or --tiny, which runs on a CPU"),
        ("gdn_speed.py", ", or --tiny --device cpu, which runs on a CPU"),
        ("linear_speed.py", ""),
    ],
)
def test_a_benchmark_says_that_it_needs_a_gpu(warm: Warm, name: str, cpu: str) -> None:
    done = warm.run([sys.executable, str(ROOT / "benchmarks" / name)])
    assert done.returncode == 2
    assert f"torch sees no CUDA device here: expected one{cpu}" in done.stderr


def test_sizes_of_a_gpu_are_refused_on_a_cpu(warm: Warm) -> None:
    done = warm.run([sys.executable, str(ROOT / "benchmarks" / "gdn_speed.py"), "--device", "cpu"])
    assert done.returncode == 2
    assert "invalid --device cpu without --tiny: expected both" in done.stderr


def test_a_profile_of_decode_writes_no_result(warm: Warm, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "decode_speed.py"), "--tiny", "--profile"]
    done = warm.run([*command, "--json", str(tmp_path / "out.json")])
    assert done.returncode == 2
    assert "--profile measures no steps: expected it without --json and --history" in done.stderr


def test_decode_profile(warm: Warm) -> None:
    assert "draftproof::paged_attention" in benchmark(warm, "decode_speed.py", "--tiny", "--profile")


def test_verify_speed(warm: Warm, tmp_path: Path) -> None:
    kept = ["--json", str(tmp_path / "verify.json"), "--history", str(tmp_path / "history.jsonl")]
    benchmark(warm, "verify_speed.py", "--tiny", "--batch", "2", *kept)
    result = json.loads((tmp_path / "verify.json").read_text())
    (row,) = result["batches"]
    assert (result["width"], row["batch"]) == (17, 2)
    assert row["tree_of_chain"] == row["tree_ms"] / row["chain_ms"]
    assert row["sampled_of_greedy"] == row["sampled_chain_ms"] / row["chain_ms"]
    (run,) = history(tmp_path / "history.jsonl")
    assert len(run.seconds) == 6
    assert run.seconds["tree, batch 2"] == row["tree_ms"] / 1e3


def test_throughput(warm: Warm, tmp_path: Path) -> None:
    kept, options = tmp_path / "history.jsonl", ["--scenarios", "2", "--seed", "5", "--label", "mine"]
    benchmark(warm, "throughput.py", *options, "--json", str(tmp_path / "rate.json"), "--history", str(kept))
    result = json.loads((tmp_path / "rate.json").read_text())
    assert (result["scenarios"], result["seed"]) == (2, 5)
    assert abs(sum(result["share"].values()) - 1) < 1e-9
    (run,) = history(kept)
    assert (run.benchmark, run.label, run.options) == ("throughput", "mine", ("scenarios 2", "seed 5"))
    assert run.seconds["base pair"] == pytest.approx(sum(run.seconds[part] for part in result["share"]))
    assert run.versions["torch"] == torch.__version__
