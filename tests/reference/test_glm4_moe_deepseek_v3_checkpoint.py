"""Reading GLM-4-MoE and DeepSeek-V3 checkpoints: defaults, published forms, and a clear error for each bad field."""

from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from draftproof.errors import CheckpointError
from draftproof.reference.models.registry import load_target
from tests.checkpoints import tiny_deepseek_v3, tiny_glm4_moe

WRITERS = {"glm": tiny_glm4_moe, "deepseek": tiny_deepseek_v3}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_tensors_are_all_known_and_all_there(writer: Callable[..., Path], tmp_path: Path) -> None:
    path = writer(tmp_path, attention_bias=True)
    stored = load_file(path / "model.safetensors")
    checkpoint = load_target(path)
    assert set(checkpoint.tensors) == {name for name in stored if not name.startswith("model.layers.3.")}
    kept = {name: array for name, array in stored.items() if name != "model.layers.1.mlp.gate.e_score_correction_bias"}
    save_file(kept, path / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=r"tensor model\.layers\.1\.mlp\.gate\.e_score_correction_bias is missing"
    ):
        load_target(path)
    save_file({**stored, "model.layers.4.eh_proj.weight": stored["model.norm.weight"]}, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"tensor model\.layers\.4\.eh_proj\.weight is unknown"):
        load_target(path)
    save_file({**stored, "model.norm.weight": stored["model.norm.weight"][:3]}, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"tensor model\.norm\.weight has shape \(3,\); config\.json asks for"):
        load_target(path)
