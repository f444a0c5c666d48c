"""The benchmarks of verifies and of the scheduler run, and measure what they name."""

from __future__ import annotations

import importlib
import json
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from draftproof.properties.formats.measurement import history
from tests.warm import Warm

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def measured(warm: Warm, folder: Path, name: str, *options: str) -> list[dict[str, Any]]:
    arguments = ["--tiny", *options, "--json", str(folder / f"{name}.json")]
    done = warm.run([sys.executable, str(BENCHMARKS / "bench.py"), name, *arguments])
    assert done.returncode == 0, done.stderr
    return json.loads((folder / f"{name}.json").read_text())["rows"]


def test_a_prefix_is_served(warm: Warm, tmp_path: Path):
    rows = measured(warm, tmp_path, "prefix", "--repeats", "2", "--history", str(tmp_path / "history.jsonl"))
    (run,) = history(tmp_path / "history.jsonl")
    assert (len(run.seconds), run.seconds["hit, prompt 48"]) == (4, rows[0]["hit_ms"] / 1e3)
    assert [(row["prompt"], row["served"]) for row in rows] == [(48, 32), (96, 80)]
    for row in rows:
        assert row["recompute_of_hit"] == pytest.approx(row["recompute_ms"] / row["hit_ms"])


def test_requests_give_way(warm: Warm, tmp_path: Path):
    (row,) = measured(warm, tmp_path, "preemption", "--repeats", "2")
    assert (row["batch"], row["preempted"] > 0) == (3, True)
    assert row["resume_of_round"] == pytest.approx(row["resume_ms"] / row["round_ms"])


def test_a_decode_step_is_timed_beside_its_graphs(warm: Warm, tmp_path: Path):
    kept = tmp_path / "history.jsonl"
    rows = measured(warm, tmp_path, "step", "--repeats", "1", "--history", str(kept))
    assert [(row["draft"], row["batch"]) for row in rows] == [
        (draft, batch) for draft in ("eagle", "ngram") for batch in (1, 3)
    ]
    for row in rows:
        assert row["step_of_graphs"] == pytest.approx(row["step_ms"] / row["graphs_ms"])
        assert row["downloads"] == 1
    assert {row["uploads"] for row in rows if row["draft"] == "eagle"} == {1}
    (run,) = history(kept)
    assert len(run.seconds) == 3 * len(rows)


def test_verifies_of_trees_and_of_sampled_requests_are_timed_beside_greedy_chains(warm: Warm, tmp_path: Path):
    rows = measured(warm, tmp_path, "verify")
    assert [row["batch"] for row in rows] == [1, 3]
    for row in rows:
        assert row["tree_of_chain"] == pytest.approx(row["tree_ms"] / row["chain_ms"])
        assert row["sampled_of_greedy"] == pytest.approx(row["sampled_chain_ms"] / row["chain_ms"])


def test_overlapped_steps_are_timed_beside_plain_ones(warm: Warm, tmp_path: Path):
    kept = tmp_path / "history.jsonl"
    rows = measured(warm, tmp_path, "overlap", "--repeats", "1", "--history", str(kept))
    assert [(row["batch"], row["near_ties"]) for row in rows] == [(1, 0), (3, 0)]
    for row in rows:
        assert 8 <= row["steps"] <= 31, "a first token, and then one to four in every step"
        assert row["plain_of_overlapped"] == pytest.approx(row["plain_ms"] / row["overlapped_ms"])
        assert not {"device_ms", "hidden"} & row.keys(), "a CPU cannot tell"
    (run,) = history(kept)
    assert list(run.seconds) == [f"{way}, batch {batch}" for batch in (1, 3) for way in ("plain", "overlapped")]


def test_a_chunk_beside_rounds_is_timed_in_one_launch_and_in_two(warm: Warm, tmp_path: Path):
    kept = tmp_path / "history.jsonl"
    options = ("--batch", "2", "--tokens", "20", "--repeats", "1", "--history", str(kept))
    rows = measured(warm, tmp_path, "mixed", *options)
    (row,) = rows
    # Two that decode, two prompts to warm up and one that counts.
    assert (row["batch"], row["verify_tokens"], row["chunk"], row["texts"]) == (2, 8, 20, 5)
    assert row["near_ties"] == 0
    for way in ("packed", "eager"):
        assert row[f"two_of_{way}"] == pytest.approx(row["two_ms"] / row[f"{way}_ms"])
    (run,) = history(kept)
    assert run.seconds == {
        f"{way}, batch 2, chunk 20": pytest.approx(row[f"{way}_ms"] / 1e3) for way in ("two", "packed", "eager")
    }


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@torch.inference_mode()
def test_steps_of_another_way_are_not_timed(modules: Callable[[str], Any]) -> None:
    server, speed = modules("server"), modules("mixed")
    given = modules("decode_model").setup(Namespace(tiny=True, seed=1))
    dense, random = server.dense_model(given), server.generator(given)
    runs = {}
    for way, config in speed._configs(given, 2, 20).items():
        one = server.Server(given, dense, config, server.NGRAM, speed.Drafted(given, 2))
        one.add(server.prompts(given, random, 2, given.prompt), speed._budget(given))
        before = one.step()
        one.add(server.prompts(given, random, 1, 20), 1)
        runs[way] = (before, one.step(), one.step())
    for way, (prompts, both, rounds) in runs.items():
        assert speed.milliseconds(way, [both] * 3, 2) == 1e3 * both.seconds
        wrong = [(way, prompts, 2), (way, rounds, 2), (way, both, 3)]
        wrong += [(other, both, 2) for other in runs if other != way]
        for other, step, batch in wrong:
            with pytest.raises(RuntimeError, match="there is nothing to time"):
                speed.milliseconds(other, [step] * 3, batch)


@torch.inference_mode()
def test_the_hidden_share_is_of_what_the_device_does_not_take(
    modules: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, speed = modules("server"), modules("overlap")
    given = modules("decode_model").setup(Namespace(tiny=True, seed=1))
    plain = server.Server(given, server.dense_model(given), server.sizes(given, 2, given.prompt, given.new))
    asked = server.prompts(given, server.generator(given), 2, given.prompt)
    rounds = sum(bool(step.plan.decode) for step in plain.serve(asked, given.new))
    monkeypatch.setattr(modules("timing"), "device_seconds", lambda run: (run(), 0.002 * rounds)[1])
    found = speed._of_device(replace(given, device="cuda"), plain, asked, 6.0, 5.0)
    assert found == pytest.approx({"device_ms": 2.0, "hidden": 0.25})
    assert "hidden" not in speed._of_device(replace(given, device="cuda"), plain, asked, 1.0, 1.0)


@torch.inference_mode()
def test_texts_may_part_where_two_logits_are_near_and_nowhere_else(modules: Callable[[str], Any]) -> None:
    server, texts = modules("server"), modules("texts")
    given = modules("decode_model").setup(Namespace(tiny=True, seed=1))
    dense = server.dense_model(given)
    asked = server.prompts(given, server.generator(given), 2, given.prompt)
    served = server.Server(given, dense, server.sizes(given, 2, given.prompt, given.new)).serve(asked, given.new)
    first, second = texts.texts(served)
    loop = modules("decode_model").DecodeLoop(dense, given, 1)
    loop.prefill(torch.tensor([(*asked[1], *second[:3])]))
    best, near, *_, worst = loop.logits[0].argsort(descending=True).tolist()
    assert best == second[3]
    texts.check_same([first, second], [first, second])
    assert texts.check_near(given, dense, asked, [first, second], [first, second]) == 0
    assert texts.check_near(given, dense, asked, [first, second], [first, (*second[:3], near)]) == 1
    for other in ((*second[:3], worst, *second[4:]), second[:3]):
        for check in (texts.check_same, lambda *both: texts.check_near(given, dense, asked, *both)):
            with pytest.raises(RuntimeError, match=f"token 3 of request 1 is {best} one way"):
                check([first, second], [first, other])
