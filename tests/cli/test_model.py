"""`check --model`: checkpoints that transformers wrote, good and bad."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftproof.cli.app import run
from tests.checkpoints import tiny_head, tiny_llama, tiny_qwen3, tiny_qwen3_5, tiny_qwen3_next

OF_STATES = {
    "commit.step_index",
    "commit.state",
    "commit.intermediate",
    "commit.pending",
    "commit.checkpoint",
    "commit.final",
    "state.ownership",
    "state.balance",
    "state.bounds",
    "relation.other_commit",
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("llama"))


def verdicts(report: Path) -> dict[str, str]:
    return {row["name"]: row["verdict"] for row in json.loads(report.read_text())["contracts"]}


def dense_verdicts(report: Path) -> dict[str, str]:
    """Those of a model without linear layers, but for the contracts that say so themselves."""
    rows = json.loads(report.read_text())["contracts"]
    skipped = {row["name"]: row["reason"] for row in rows if row["verdict"] == "SKIP"}
    assert set(skipped) == OF_STATES
    assert set(skipped.values()) == {"the model has no linear layers"}
    return {name: verdict for name, verdict in verdicts(report).items() if name not in skipped}


def test_a_llama_with_a_made_up_head_passes(llama, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = run(["check", "--model", str(llama), "--json", "report.json"])
    found = dense_verdicts(Path("report.json"))
    assert set(found.values()) <= {"PASS", "INCONCLUSIVE"}
    assert code in (0, 125)
    assert found["verify.hidden"] == found["commit.kv"] == "PASS"


def test_a_qwen3_with_a_head_of_its_own_passes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = tiny_qwen3(tmp_path / "qwen3")
    head = tiny_head(tmp_path / "head", model)
    code = run(["check", "--model", str(model), "--head", str(head), "--examples", "4", "--json", "report.json"])
    assert code in (0, 125)
    assert set(dense_verdicts(Path("report.json")).values()) <= {"PASS", "INCONCLUSIVE"}


@pytest.mark.parametrize("write", [tiny_qwen3_next, tiny_qwen3_5], ids=["qwen3_next", "qwen3_5"])
@pytest.mark.parametrize("draft", [(), ("--mtp",)], ids=["eagle", "mtp"])
def test_a_hybrid_passes(write: Callable[[Path], Path], draft: tuple[str, ...], tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = run(
        ["check", "--model", str(write(tmp_path / "hybrid")), *draft, "--examples", "4", "--json", "report.json"]
    )
    found = verdicts(Path("report.json"))
    assert code in (0, 125)
    assert set(found.values()) <= {"PASS", "INCONCLUSIVE"}
    counted = json.loads(Path("report.json").read_text())["counts"]
    assert counted["hybrid_scenarios"] == 4
    assert min(counted["snapshot_rounds"], counted["replays_folded"], counted["finals"]) > 0
    assert found["verify.hidden"] == found["lossless"] == found["config.seen"] == "PASS"


def test_a_draft_that_the_checkpoint_lacks_is_2_and_named(tmp_path, capsys):
    folder = tiny_qwen3_5(tmp_path / "without", mtp=False)
    assert run(["check", "--model", str(folder), "--mtp", "--examples", "1"]) == 2
    assert "mtp." in capsys.readouterr().err


@pytest.mark.parametrize(("more", "named"), [(("--mtp",), "--model"), (("--mtp", "--head", "x"), "not both")])
def test_an_mtp_draft_needs_a_model_and_no_head(more: tuple[str, ...], named: str, capsys):
    assert run(["check", *more, "--examples", "1"]) == 2
    assert named in capsys.readouterr().err


def without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def without_a_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors")


def with_a_wrong_shape(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = torch.ones(7)
    save_file(tensors, folder / "model.safetensors")


def of_another_architecture(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": ["GPT2LMHeadModel"]}))


def as_a_pickle(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("damage", "parts"),
    [
        (without_config, ["config.json"]),
        (without_a_tensor, ["model.layers.1.mlp.up_proj.weight", "missing"]),
        (with_a_wrong_shape, ["model.norm.weight", "(7,)"]),
        (of_another_architecture, ["GPT2LMHeadModel", "allowed"]),
        (as_a_pickle, ["pytorch_model.bin"]),
    ],
)
def test_a_bad_checkpoint_is_2_and_named(llama, tmp_path, capsys, damage: Callable[[Path], None], parts):
    folder = tmp_path / "bad"
    shutil.copytree(llama, folder)
    damage(folder)
    assert run(["check", "--model", str(folder), "--examples", "1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: --model {folder}: ")
    for part in parts:
        assert part in line


def test_a_bad_head_is_2_and_named(llama, tmp_path, capsys):
    assert run(["check", "--model", str(llama), "--head", str(tmp_path / "none"), "--examples", "1"]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err
