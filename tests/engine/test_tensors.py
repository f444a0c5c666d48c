"""What a checkpoint directory may hold: every bad one gets an error that names what is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from draftproof.engine.models.base import Target
from draftproof.engine.models.eagle_head import load_head
from draftproof.engine.models.registry import load_target
from draftproof.errors import CheckpointError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    config = LlamaConfig(
        vocab_size=31,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=4,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    return tmp_path


def load(directory: Path) -> Target:
    return load_target(directory, "cpu", torch.float32)


def change_config(directory: Path, **fields: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def change_tensors(directory: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(directory / WEIGHTS)
    change(tensors)
    save_file(tensors, directory / WEIGHTS)


def test_a_good_one_loads(checkpoint: Path) -> None:
    vocab = json.loads((checkpoint / "config.json").read_text())["vocab_size"]
    assert load(checkpoint).vocab == vocab


def test_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere/config\.json does not exist: expected a checkpoint directory"):
        load(tmp_path / "nowhere")


def test_missing_config(checkpoint: Path) -> None:
    (checkpoint / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json does not exist"):
        load(checkpoint)


def test_missing_tensor(checkpoint: Path) -> None:
    change_tensors(checkpoint, lambda tensors: tensors.pop("model.layers.1.mlp.down_proj.weight"))
    with pytest.raises(CheckpointError, match=r"model\.layers\.1\.mlp\.down_proj\.weight is missing .*\[16, 24\]"):
        load(checkpoint)


def test_wrong_shape(checkpoint: Path) -> None:
    change_tensors(checkpoint, lambda tensors: tensors.update({"model.norm.weight": torch.ones(15)}))
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight has shape \[15\]; expected \[16\]"):
        load(checkpoint)


def test_integer_tensor(checkpoint: Path) -> None:
    change_tensors(checkpoint, lambda tensors: tensors.update({"model.norm.weight": torch.ones(16, dtype=torch.int8)}))
    with pytest.raises(CheckpointError, match=r"expected a floating-point dtype, not torch\.int8"):
        load(checkpoint)


def test_tensor_that_nobody_reads(checkpoint: Path) -> None:
    bias = {"model.layers.0.self_attn.q_proj.bias": torch.ones(16)}
    change_tensors(checkpoint, lambda tensors: tensors.update(bias))
    with pytest.raises(CheckpointError, match=r"q_proj\.bias .* unknown to the architecture"):
        load(checkpoint)


def test_pickle_is_refused(checkpoint: Path) -> None:
    (checkpoint / WEIGHTS).rename(checkpoint / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"found the pickle pytorch_model\.bin, which is never loaded"):
        load(checkpoint)


def test_no_weights(checkpoint: Path) -> None:
    (checkpoint / WEIGHTS).unlink()
    with pytest.raises(CheckpointError, match=r"has no weights: expected model\.safetensors or"):
        load(checkpoint)


@pytest.mark.parametrize("kept", [0, 5, 300, -7])
def test_truncated_file(checkpoint: Path, kept: int) -> None:
    path = checkpoint / WEIGHTS
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match="is not a readable safetensors file"):
        load(checkpoint)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "invalid weight_map None in .*: expected tensor and file names"),
        ({"weight_map": {"model.norm.weight": "../model.safetensors"}}, "invalid shard '../model.safetensors' in"),
        ({"weight_map": {"model.norm.weight": "model.bin"}}, r"invalid shard 'model\.bin' in"),
        ({"weight_map": {"model.norm.weight": "gone.safetensors"}}, r"gone\.safetensors is not a readable"),
        ({"weight_map": {"other": "shard.safetensors"}}, r"tensor other is missing from .*shard\.safetensors"),
    ],
)
def test_bad_index(checkpoint: Path, index: dict[str, Any], message: str) -> None:
    (checkpoint / WEIGHTS).rename(checkpoint / "shard.safetensors")
    (checkpoint / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=message):
        load(checkpoint)


def test_head_must_fit_its_target(checkpoint: Path) -> None:
    target = load_target(checkpoint, "cpu", torch.float32)
    made_up = target.eagle_config(target.config)
    with pytest.raises(CheckpointError, match=r"invalid num_hidden_layers 2 .*expected 1 for an EAGLE head"):
        load_head(checkpoint, target, made_up, "cpu", torch.float32)
    change_config(checkpoint, num_hidden_layers=1)
    with pytest.raises(CheckpointError, match=r"tensor fc\.weight is missing .*\[16, 32\]"):
        load_head(checkpoint, target, made_up, "cpu", torch.float32)
