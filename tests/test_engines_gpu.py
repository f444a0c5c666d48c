"""The list of checks for released engines on a GPU, up to where it needs one."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from draftproof.faults import engine_checkpoints
from tests import engines_gpu
from tests.engines_gpu import CHECKS, MISTAKES, Check, Run, first_failure, listed, words


@pytest.fixture(scope="module")
def mistaken() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mistaken_sglang", engines_gpu.OTHER / "mistaken_sglang.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_mistake_is_in_the_list(mistaken: ModuleType) -> None:
    assert [one.mistake for one in MISTAKES] == list(mistaken.MISTAKES)
    hybrid = [one.mistake for one in MISTAKES if one.kind == "hybrid"]
    assert hybrid == [name for name in mistaken.MISTAKES if name.startswith("state")]


def test_checkpoints_of_the_list_are_written() -> None:
    source = Path(engine_checkpoints.__file__).read_text(encoding="utf-8")
    for target, _, head in engines_gpu.DRAFTS.values():
        assert f'"{target}"' in source
        assert not head or f'"{head}"' in source


def test_words_of_a_check(tmp_path: Path) -> None:
    check = Check("mistake-x", "eagle", 3, 8, ("graphs=no",), "x")
    line = words(check, "0.5.13", Path("ck"), Path("engines"), tmp_path)
    assert line[:6] == ["check", "--model", "ck/llama", "--draft", "eagle", "--draft-model"]
    assert [line[place + 1] for place, word in enumerate(line) if word == "--set"] == [
        "release=0.5.13",
        "engines=engines",
        "graphs=no",
        "mistake=x",
    ]
    assert "mistaken_sglang:Mistaken" in line


def test_mistakes_are_of_one_release() -> None:
    found = listed(["0.5.11", "0.5.13"], "", 6)
    assert [check for release, check in found if release == "0.5.11"] == [
        one._replace(examples=min(one.examples, 6)) for one in CHECKS
    ]
    assert {check.name for _, check in listed(["0.5.13"], "warm,state", 6)} == {
        "warm-eagle", "warm-hybrid", "mistake-state-not-committed", "mistake-state-one-step-too-far",
        "mistake-state-of-the-row-before", "mistake-state-told-one-less",
    }  # fmt: skip


def test_first_failure_of_a_result(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    assert first_failure(path) == ""
    contracts = [{"name": "runs", "verdict": "PASS"}, {"name": "verify.ids", "verdict": "FAIL"}]
    path.write_text(json.dumps({"contracts": contracts}))
    assert first_failure(path) == "FAIL verify.ids"


def test_a_run_of_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that warm up come first; one whose time is over is ended, and said to be."""
    began: list[str] = []

    def draftproof(*given: str) -> list[str]:
        began.append(given[0])
        name = next((Path(word).stem for word in given if word.endswith(".json")), "")
        sleeps = "import time; time.sleep(60)" if "slow" in name else ""
        return [sys.executable, "-c", f"print({name!r}); {sleeps}"]

    monkeypatch.setattr(engines_gpu, "draftproof", draftproof)
    run = Run(tmp_path, tmp_path, 3.0)
    checks = [("r", Check(name, "eagle", 1, 1)) for name in ("slow", "quick", "warm")]
    ended = run.all_of(checks, 2)
    assert [(one.check.name, one.code) for one in ended] == [("warm", 0), ("slow", None), ("quick", 0)]
    assert began == ["lab", "lab", "check", "check", "check"]
    assert (tmp_path / "r-quick.log").read_text() == "r-quick\n"


def drafting(mistaken: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str) -> SimpleNamespace:
    """Return what a draft's decode was given under a mistake, by a worker of our own with that method."""
    seen = SimpleNamespace()

    class EagleDraftWorker:
        def draft_forward(self, batch: SimpleNamespace) -> None:
            seen.__dict__.update(
                positions=batch.positions.tolist(),
                slots=batch.out_cache_loc.tolist(),
                hidden=batch.spec_info.hidden_states[:, 0].tolist(),
                ids=batch.spec_info.topk_index[:, 0].tolist(),
            )

    import torch

    monkeypatch.setitem(
        sys.modules, "sglang.srt.speculative.eagle_worker_v2", SimpleNamespace(EagleDraftWorker=EagleDraftWorker)
    )
    for part in ("sglang", "sglang.srt", "sglang.srt.speculative"):
        monkeypatch.setitem(sys.modules, part, SimpleNamespace(__path__=[]))
    mistaken.MISTAKES[name]()
    spec = SimpleNamespace(hidden_states=torch.tensor([[1.0], [2.0]]), topk_index=torch.tensor([[5], [6]]))
    batch = SimpleNamespace(
        positions=torch.tensor([3, 8]), out_cache_loc=torch.tensor([10, 11, 20, 21]), spec_info=spec
    )
    EagleDraftWorker().draft_forward(batch)
    assert batch.positions.tolist() == [3, 8]
    return seen


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("draft-positions-one-ahead", {"positions": [4, 9]}),
        ("draft-hidden-of-the-row-before", {"hidden": [2.0, 1.0]}),
        ("draft-slots-of-the-row-before", {"slots": [20, 21, 10, 11]}),
        ("draft-ids-of-the-row-before", {"ids": [6, 5]}),
    ],
)
def test_a_mistake_changes_what_it_says(
    mistaken: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, changed: dict[str, list[float]]
) -> None:
    right = {"positions": [3, 8], "slots": [10, 11, 20, 21], "hidden": [1.0, 2.0], "ids": [5, 6]}
    assert vars(drafting(mistaken, monkeypatch, name)) == right | changed
