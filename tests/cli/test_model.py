"""`check --model`: checkpoints that transformers wrote, good and bad."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftproof.cli.app import run
from tests.checkpoints import (
    tiny_deepseek_v3,
    tiny_dflash,
    tiny_glm4_moe,
    tiny_head,
    tiny_llama,
    tiny_qwen3,
    tiny_qwen3_5,
    tiny_qwen3_next,
)

OF_STATES = {
    "commit.step_index",
    "commit.state",
    "commit.intermediate",
    "commit.pending",
    "commit.checkpoint",
    "commit.final",
    "commit.cached",
    "state.ownership",
    "state.balance",
    "state.bounds",
    "variant.other_commit",
    "prefix_cache.states",
}
OF_OTHER_DRAFTS = {"block.ids", "block.positions", "block.visible", "block.proposal", "draft.match"} | {
    "chain.ids",
    "chain.hidden",
}
OF_PROBES = {"schedule.aborted", "variant.alone", "variant.chain_as_tree", "accept.prompt_logprobs"}
OF_PROBES |= {
    "schedule.token_budget",
    "output.ends",
    "output.refused",
    "launch.packed",
    "variant.unmixed",
    "draft.weights",
}
OF_PROBES |= {f"overlap.{name}" for name in ("buffers", "discarded", "pages", "schedule")} | {"variant.unoverlapped"}
OF_PROBES |= {"rank.collectives", "rank.idle", "tensor.collectives", "tensor.decisions"}
OF_PROBES |= {f"disaggregation.{name}" for name in ("committed", "engines", "entries", "hidden", "schedule", "state")}
OF_CONTROLLERS = {"adaptive_steps.average", "adaptive_steps.steps"}
"""Those that concern none of a few scenarios, where none of these has a controller."""
FINE = {"PASS", "INCONCLUSIVE", "SKIP"}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("llama"))


def verdicts(report: Path) -> dict[str, str]:
    return {row["name"]: row["verdict"] for row in json.loads(report.read_text())["contracts"]}


def report_of(*options: str) -> dict[str, Any]:
    """The report of a check that nothing fails in."""
    assert run(["check", *options, "--json", "report.json"]) in (0, 125)
    report = json.loads(Path("report.json").read_text())
    assert {row["verdict"] for row in report["contracts"]} <= FINE
    return report


def dense_verdicts(report: Path) -> dict[str, str]:
    """Those of a model without linear layers and an EAGLE head, but for the contracts of others."""
    rows = json.loads(report.read_text())["contracts"]
    skipped = {row["name"]: row["reason"] for row in rows if row["verdict"] == "SKIP"}
    assert set(skipped) - OF_CONTROLLERS == OF_STATES | OF_OTHER_DRAFTS | OF_PROBES
    unreported = {name for name in skipped if name.startswith(("disaggregation.", "overlap."))}
    assert all(
        "draft" in reason
        for name, reason in skipped.items()
        if name not in {"prefix_cache.pages", *unreported, *OF_CONTROLLERS}
    )
    return {name: verdict for name, verdict in verdicts(report).items() if name not in skipped}


def test_a_llama_with_a_made_up_head_passes(llama, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = run(["check", "--model", str(llama), "--examples", "8", "--json", "report.json"])
    found = dense_verdicts(Path("report.json"))
    assert set(found.values()) <= {"PASS", "INCONCLUSIVE"}
    assert code in (0, 125)
    assert found["verify.hidden"] == found["commit.kv"] == "PASS"


def test_a_qwen3_with_a_head_of_its_own_passes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = tiny_qwen3(tmp_path / "qwen3")
    head = tiny_head(tmp_path / "head", model)
    code = run(["check", "--model", str(model), "--draft-model", str(head), "--examples", "4", "--json", "report.json"])
    assert code in (0, 125)
    assert set(dense_verdicts(Path("report.json")).values()) <= {"PASS", "INCONCLUSIVE"}


@pytest.mark.parametrize("write", [tiny_qwen3_next, tiny_qwen3_5], ids=["qwen3_next", "qwen3_5"])
@pytest.mark.parametrize("draft", [(), ("--mtp",), ("--draft", "mtp")], ids=["eagle", "repeated_mtp", "mtp"])
def test_a_hybrid_passes(write: Callable[[Path], Path], draft: tuple[str, ...], tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = run(
        ["check", "--model", str(write(tmp_path / "hybrid")), *draft, "--examples", "8", "--json", "report.json"]
    )
    found = verdicts(Path("report.json"))
    assert code in (0, 125)
    assert set(found.values()) <= FINE
    counted = json.loads(Path("report.json").read_text())["counts"]
    assert counted["hybrid_scenarios"] == 8
    assert min(counted["snapshot_rounds"], counted["replays_folded"], counted["finals"]) > 0
    assert found["config.seen"] == found["extend.ids"] == "PASS"
    assert found["verify.choice"] in (
        "PASS",
        "INCONCLUSIVE",
    )  # four scenarios may have no greedy request beside a sampled
    if "mtp" not in draft:  # these have one layer, and one draft is never accepted in part
        assert found["verify.hidden"] == found["output.lossless"] == "PASS"


@pytest.mark.parametrize(
    ("write", "draft", "of_states"), [(tiny_llama, "eagle", 0), (tiny_qwen3_next, "mtp", 1)], ids=["dense", "hybrid"]
)
def test_a_prefix_cache_serves_pages_of_a_checkpoint(
    write: Callable[[Path], Path], draft: str, of_states: int, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    asked = ("--model", str(write(tmp_path / "model")), "--draft", draft, "--seed", "3", "--examples", "12")
    report = report_of(*asked)
    found = {row["name"]: row["verdict"] for row in report["contracts"]}
    assert found["prefix_cache.matched"] == found["prefix_cache.pages"] == "PASS"
    assert (found["prefix_cache.states"] == "PASS") == bool(of_states)
    assert report["counts"]["prefix_hits"] > 0
    assert min(report["counts"]["prefix_hits"], report["counts"]["prefix_hits_of_hybrids"]) >= of_states


def test_a_draft_that_the_checkpoint_lacks_is_2_and_named(tmp_path, capsys):
    folder = tiny_qwen3_5(tmp_path / "without", mtp=False)
    assert run(["check", "--model", str(folder), "--mtp", "--examples", "1"]) == 2
    assert "mtp." in capsys.readouterr().err


@pytest.mark.parametrize("model", [tiny_glm4_moe, tiny_deepseek_v3], ids=["glm4_moe", "deepseek_v3"])
def test_a_chain_of_the_checkpoints_own_layers_is_as_long_as_it_is(model: Callable[..., Path], tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = report_of("--model", str(model(tmp_path / "m", mtp=2)), "--draft", "mtp", "--examples", "5")
    counts = report["drafts"]["mtp"]
    assert counts["scenarios"] == 5
    assert min(counts["layers_chained"], counts["guesses_replaced"], counts["levels_2"]) > 0
    longer = [count for name, count in counts.items() if name.startswith("levels_") and name[-1] not in "12"]
    assert len(longer) > 3
    assert not any(longer)


@pytest.mark.parametrize(
    ("name", "write"), [("dflash", tiny_dflash), ("standalone", tiny_qwen3)], ids=["dflash", "standalone"]
)
def test_a_draft_from_a_directory_passes(name: str, write: Callable[[Path], Path], llama, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = str(write(tmp_path / "draft"))
    report = report_of("--model", str(llama), "--draft", name, "--draft-model", folder, "--examples", "4")
    assert list(report["drafts"]) == [name]
    assert report["drafts"][name]["rounds_with_drafts"] > 0


def test_an_ngram_draft_finds_something_in_a_real_models_prompts(llama, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = report_of("--model", str(llama), "--draft", "ngram", "--examples", "6")
    assert min(report["drafts"]["ngram"][name] for name in ("matches", "no_matches", "own_rejected")) > 0


def test_all_means_every_draft_that_the_directories_allow(llama, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    both = ("--draft", "all", "--examples", "4")
    assert list(report_of("--model", str(llama), *both)["drafts"]) == ["eagle", "ngram"]
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("drafts: "))
    assert line.startswith("drafts: eagle (made up from the seed), ngram (")
    assert all(f"; no {name} (" in line for name in ("mtp", "dflash", "standalone", "eagle3"))
    target, folder = tiny_glm4_moe(tmp_path / "glm"), tiny_dflash(tmp_path / "dflash")
    report = report_of("--model", str(target), "--draft-model", str(folder), *both)
    assert list(report["drafts"]) == ["eagle", "mtp", "dflash", "ngram"]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--mtp",), "--model"),
        (("--model", "x", "--mtp", "--draft-model", "y"), "not both"),
        (("--model", "x", "--mtp", "--draft", "mtp"), "expected --draft eagle"),
        (("--model", "x", "--draft", "dflash"), "invalid --draft 'dflash': expected --draft-model"),
        (("--model", "x", "--draft", "standalone"), "invalid --draft 'standalone': expected --draft-model"),
        (
            ("--model", "x", "--draft", "ngram", "--draft-model", "y"),
            "--draft eagle, dflash, standalone, eagle3 or all",
        ),
        (("--model", "x", "--draft", "mtp", "--draft-model", "y"), "--draft eagle, dflash, standalone, eagle3 or all"),
    ],
)
def test_options_that_do_not_go_together_are_2_and_named(
    more: tuple[str, ...], named: str, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text("{}")
    assert run(["check", *more, "--examples", "1"]) == 2
    assert named in capsys.readouterr().err


def test_a_directory_that_fits_no_draft_is_2_and_named(llama, tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
    arguments = ["--model", str(llama), "--draft", "all", "--draft-model", str(tmp_path), "--examples", "1"]
    assert run(["check", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path} fits no draft: as eagle: " in line
    assert "GPT2LMHeadModel" in line


def test_a_model_without_mtp_layers_has_no_such_draft(llama, capsys):
    assert run(["check", "--model", str(llama), "--draft", "mtp", "--examples", "1"]) == 2
    assert "LlamaForCausalLM" in capsys.readouterr().err


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
        (of_another_architecture, ["GPT2LMHeadModel", "expected"]),
        (as_a_pickle, ["pytorch_model.bin"]),
    ],
)
def test_a_bad_checkpoint_is_2_and_named(llama, tmp_path, capsys, damage: Callable[[Path], None], parts):
    folder = tmp_path / "bad"
    shutil.copytree(llama, folder)
    damage(folder)
    assert run(["check", "--model", str(folder), "--examples", "1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --model: ")
    assert line.count(str(folder)) == 1
    for part in parts:
        assert part in line


def test_a_bad_head_is_2_and_named(llama, tmp_path, capsys):
    assert run(["check", "--model", str(llama), "--draft-model", str(tmp_path / "none"), "--examples", "1"]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err
