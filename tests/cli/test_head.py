"""`draftproof lab head write`: what it writes is read as an EAGLE head of the target, with the very weights."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file, save_file

import draftproof.faults
from draftproof.cli.app import run
from draftproof.reference.models.eagle_head import ReferenceEagleHead
from draftproof.reference.models.registry import load_target
from tests.checkpoints import tiny_deepseek_v3, tiny_llama, tiny_qwen3


@pytest.mark.parametrize("target", [tiny_llama, tiny_qwen3, tiny_deepseek_v3])
def test_a_random_head_is_that_of_its_seed(target: Callable[[Path], Path], tmp_path: Path):
    path, out = target(tmp_path / "target"), tmp_path / "head"
    assert run(["lab", "head", "write", "--model", str(path), "--out", str(out), "--seed", "5"]) == 0
    model = load_target(path)
    written, made = ReferenceEagleHead.load(model, out), ReferenceEagleHead.random(model, 5)
    tokens, hidden = (1, 2, 3), model.forward((4, 1, 2)).hidden
    assert torch.equal(written.forward(tokens, hidden).logits, made.forward(tokens, hidden).logits)


def test_given_tensors_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path, out, file = tiny_llama(tmp_path / "target"), tmp_path / "head", tmp_path / "given.safetensors"
    options = ["lab", "head", "write", "--model", str(path), "--out", str(out)]
    assert run(options) == 0
    tensors = load_file(out / "model.safetensors")
    assert run(options) == 2
    assert "expected a new or an empty directory" in capsys.readouterr().err
    options = [*options[:-1], str(tmp_path / "other")]
    save_file({name: 2 * tensor for name, tensor in tensors.items()}, file)
    assert run([*options, "--weights", str(file)]) == 0
    assert (load_file(tmp_path / "other" / "model.safetensors")["fc.weight"] == 2 * tensors["fc.weight"]).all()
    options = [*options[:-1], str(tmp_path / "third")]
    for broken, told in (
        ({name: tensor for name, tensor in tensors.items() if name != "fc.weight"}, "fc.weight is missing"),
        ({**tensors, "fc.bias": tensors["fc.weight"][0]}, "fc.bias is unknown"),
        ({**tensors, "fc.weight": tensors["fc.weight"][:1].copy()}, "has shape"),
    ):
        save_file(broken, file)
        assert run([*options, "--weights", str(file)]) == 2
        assert told in capsys.readouterr().err
    file.write_text("nothing")
    assert run([*options, "--weights", str(file)]) == 2
    assert "cannot be read as safetensors" in capsys.readouterr().err
    assert run(["lab", "head", "write", "--model", str(tmp_path / "nowhere"), "--out", str(out)]) == 2


def test_checkpoints_for_servers_have_a_tokenizer_and_no_end(tmp_path):
    from transformers import AutoTokenizer

    assert run(["lab", "checkpoints", "--server", str(tmp_path)]) == 0
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "llama")
    assert tokenizer("5 1 66").input_ids == [5, 1, 66]
    for name in ("llama", "eagle-llama", "eagle3-qwen3"):
        config = json.loads((tmp_path / name / "config.json").read_text())
        assert (config["eos_token_id"], config["head_dim"], bool(config["model_type"])) == (None, 32, True)


def test_checkpoints_go_to_a_folder(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    assert run(["lab", "checkpoints", str(tmp_path / "file")]) == 2
    assert "/file': it cannot be written: File exists" in capsys.readouterr().err
    for name in ("transformers", "tokenizers"):  # the second comes with the first, which alone is asked for
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("tiny_checkpoints", "engine_checkpoints"):
        monkeypatch.delitem(sys.modules, f"draftproof.faults.{name}", raising=False)
        monkeypatch.delattr(draftproof.faults, name, raising=False)
    assert run(["lab", "checkpoints", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err == "error: no transformers: expected it installed, as by pip install transformers\n"
