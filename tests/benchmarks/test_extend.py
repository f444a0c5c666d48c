"""The benchmark of a draft's graphs runs, measures every part, and refuses to time a replay that is wrong."""

from __future__ import annotations

import importlib
import json
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from draftproof import kernels
from draftproof.engine.graphs.backend import GraphFunction
from draftproof.engine.graphs.host import HostBackend, HostGraph
from draftproof.engine.runner import GraphRunner
from tests.warm import Warm

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CHAIN = ("layer 0", "layer 1", "layer 2", "all layers", "extend round trip")
BLOCK = ("append", "extend round trip", "block", "block round trip")
PARTS = {"glm mtp": CHAIN, "probe mtp": CHAIN, "glm dflash": BLOCK}
REPEATS, WARM = 2, 3


def test_it_measures_every_part(warm: Warm, tmp_path: Path) -> None:
    arguments = ["--tiny", "--repeats", str(REPEATS), "--json", str(tmp_path / "extend.json")]
    command = [sys.executable, str(BENCHMARKS / "bench.py"), "extend", *arguments]
    done = warm.run(command)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "extend.json").read_text())
    found = [(row["draft"].partition(" (")[0], row["batch"], row["part"]) for row in result["rows"]]
    assert found == [(draft, batch, part) for draft, parts in PARTS.items() for batch in (1, 3) for part in parts]
    for row in result["rows"]:
        assert row["draft"].endswith("(int64)" if row["draft"].startswith("probe mtp") else "(float32)")
        assert row["replay_us"] > 0
        assert row["eager_of_replay"] * row["replay_us"] == pytest.approx(row["eager_us"])
        # The check before them replays once.
        graphs = 3 if not row["draft"].startswith("glm dflash") and not row["part"].startswith("layer") else 1
        assert row["replays"] == graphs * (1 + WARM + REPEATS)
    assert "eager of replay" in done.stdout


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def complaint(modules: Callable[[str], Any], draft: str, action: str) -> str:
    """What the check before the benchmark finds wrong with a batch of two; "" if nothing."""
    given = modules("extend_models").setup(Namespace(tiny=True, seed=1, batch=[2], repeats=1))
    with torch.no_grad():
        a_round = modules("extend_round").Round(given, modules("extend_models").MODELS[draft](given), 2)
        try:
            modules("extend").check(a_round, action, getattr(a_round, action))
        except RuntimeError as error:
            return str(error)
    return ""


CASES = [("glm mtp", "extend"), ("probe mtp", "extend"), ("glm dflash", "extend"), ("glm dflash", "block")]


@pytest.mark.parametrize(("draft", "action"), CASES)
def test_right_replays_pass(modules: Callable[[str], Any], draft: str, action: str) -> None:
    assert complaint(modules, draft, action) == ""


@pytest.mark.parametrize(("draft", "action"), CASES)
def test_a_replay_that_leaves_something_else_is_not_timed(
    modules: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, draft: str, action: str
) -> None:
    """What is captured writes values of zero."""
    capture, write = HostBackend.capture, kernels.kv_write

    def wrong(keys: torch.Tensor, values: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor) -> None:
        write(keys, values, k, torch.zeros_like(v), slots)

    def spoiled(backend: HostBackend, function: GraphFunction, declared: Sequence[torch.Tensor]) -> HostGraph:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "kv_write", wrong)
            return capture(backend, function, declared)

    monkeypatch.setattr(HostBackend, "capture", spoiled)
    said = complaint(modules, draft, action)
    first = "drafts" if action == "block" else r"draft\.v\.0"
    assert re.fullmatch(rf"{action}, batch 2: after the replay {first} at .* is .*; its speed means nothing", said)


def test_a_graph_that_is_never_replayed_is_not_timed(
    modules: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GraphRunner, "prepare", lambda *_: None)
    assert "expected launches of graph size 2, got" in complaint(modules, "probe mtp", "extend")


def test_work_that_does_nothing_is_not_timed(modules: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules("extend"), "_launches", lambda *_: [])
    monkeypatch.setattr(modules("extend_round").Round, "extend", lambda *_: {})
    assert "leaves no trace in memory" in complaint(modules, "probe mtp", "extend")
