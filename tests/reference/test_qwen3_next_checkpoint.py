"""Reading hybrid checkpoints: both forms of config.json, and a clear error for each thing that can be wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftproof.errors import CheckpointError
from draftproof.reference.models.registry import load_target
from tests.checkpoints import tiny_qwen3_5, tiny_qwen3_next


def edit_tensors(path: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")


@pytest.mark.parametrize(
    ("name", "extra"),
    [("model.layers.0.linear_attn.A_log", False), ("model.layers.0.linear_attn.conv1d.bias", True)],
)
def test_missing_and_unknown_tensors(tmp_path: Path, name: str, extra: bool) -> None:
    path = tiny_qwen3_next(tmp_path)
    edit_tensors(path, lambda tensors: tensors.update({name: torch.ones(3)}) if extra else tensors.pop(name))
    with pytest.raises(CheckpointError, match=f"tensor {name} is {'unknown' if extra else 'missing'}"):
        load_target(path)


def test_a_tensor_of_another_shape(tmp_path: Path) -> None:
    path, name = tiny_qwen3_5(tmp_path), "model.layers.0.linear_attn.conv1d.weight"
    edit_tensors(path, lambda tensors: tensors.update({name: tensors[name][:, 0].contiguous()}))
    with pytest.raises(CheckpointError, match=rf"{name} has shape \(96, 3\); config\.json asks for \(96, 1, 3\)"):
        load_target(path)


def test_a_vision_tower_is_ignored(tmp_path: Path) -> None:
    path = tiny_qwen3_5(tmp_path)
    before = load_target(path).tensors
    edit_tensors(path, lambda tensors: tensors.update({"model.visual.blocks.0.norm1.weight": torch.ones(3)}))
    after = load_target(path).tensors
    assert before.keys() == after.keys()
    assert load_target(path).mtp_layers(path)


@pytest.mark.parametrize("name", ["mtp.embed_tokens.weight", "mtp.layers.1.input_layernorm.weight", "mtp.fc.bias"])
def test_a_tensor_of_another_mtp_layer(tmp_path: Path, name: str) -> None:
    path = tiny_qwen3_next(tmp_path)
    edit_tensors(path, lambda tensors: tensors.update({name: torch.ones(30)}))
    target = load_target(path)
    with pytest.raises(CheckpointError, match=f"tensor {name} is unknown"):
        target.mtp_layers(path)
