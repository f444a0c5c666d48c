"""Reading checkpoints: both forms of config.json, and a clear error for each thing that can be wrong."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftproof.errors import CheckpointError
from draftproof.reference.models.registry import load_target
from tests.checkpoints import SIZES, tiny_llama, write

NORM = "model.layers.1.post_attention_layernorm.weight"


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return tiny_llama(tmp_path / "llama")


def edit_config(path: Path, **fields: Any) -> None:
    """Set fields of config.json; a value of `...` removes the field."""
    file = path / "config.json"
    config = {**json.loads(file.read_text()), **fields}
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not ...}))


def edit_tensors(path: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json does not exist"):
        load_target(tmp_path / "nowhere")


def test_no_weights(llama: Path) -> None:
    (llama / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"no weights found: expected model\.safetensors"):
        load_target(llama)


def test_a_pickle_is_never_opened(llama: Path) -> None:
    (llama / "model.safetensors").rename(llama / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"found the pickle pytorch_model\.bin, which is never opened"):
        load_target(llama)


def test_missing_tensor(llama: Path) -> None:
    edit_tensors(llama, lambda tensors: tensors.pop(NORM))
    with pytest.raises(CheckpointError, match=f"tensor {NORM} is missing"):
        load_target(llama)


def test_untied_model_without_lm_head(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path, tie_word_embeddings=True)
    edit_config(path, tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match=r"tensor lm_head\.weight is missing"):
        load_target(path)


def test_tied_model_that_stores_lm_head_too(llama: Path) -> None:
    edit_config(llama, tie_word_embeddings=True)
    target = load_target(llama)
    assert target.lm_head is target.embedding


def test_wrong_shape(llama: Path) -> None:
    edit_config(llama, intermediate_size=43)
    with pytest.raises(CheckpointError, match=r"mlp\.\w+_proj\.weight has shape \(.*44.*\); config.json asks for .*43"):
        load_target(llama)


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.q_proj.bias", "model.layers.3.mlp.up_proj.weight"])
def test_tensor_that_nobody_would_read(llama: Path, name: str) -> None:
    edit_tensors(llama, lambda tensors: tensors.update({name: torch.ones(3)}))
    with pytest.raises(CheckpointError, match=f"tensor {name} is unknown to the architecture"):
        load_target(llama)


def test_stored_rotary_frequencies_are_passed_over(llama: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit_tensors(llama, lambda tensors: tensors.update({name: torch.ones(8)}))
    assert name not in load_target(llama).tensors


def test_integer_tensor(llama: Path) -> None:
    edit_tensors(llama, lambda tensors: tensors.update({NORM: tensors[NORM].to(torch.int8)}))
    with pytest.raises(CheckpointError, match=r"has dtype torch\.int8: expected torch\.float64"):
        load_target(llama)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_tensor_that_is_not_finite(llama: Path, value: float) -> None:
    edit_tensors(llama, lambda tensors: tensors[NORM].fill_(value))
    with pytest.raises(CheckpointError, match=f"tensor {NORM} holds NaN or infinity"):
        load_target(llama)


@pytest.mark.parametrize("size", [0, 4, 100, -1])
def test_truncated_file(llama: Path, size: int) -> None:
    file = llama / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: broken or truncated safetensors file"):
        load_target(llama)


def test_header_that_lies_about_its_length(llama: Path) -> None:
    file = llama / "model.safetensors"
    file.write_bytes(struct.pack("<Q", 1 << 60) + file.read_bytes()[8:])
    with pytest.raises(CheckpointError, match="broken or truncated"):
        load_target(llama)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    path = write("LlamaForCausalLM", SIZES, tmp_path, seed=0, max_shard_size="20KB")
    assert len(list(path.glob("model-*.safetensors"))) > 2
    return path


def edit_index(path: Path, change: Callable[[dict[str, str]], Any]) -> None:
    file = path / "model.safetensors.index.json"
    index = json.loads(file.read_text())
    change(index["weight_map"])
    file.write_text(json.dumps(index))


def test_shards_equal_a_single_file(shards: Path, llama: Path) -> None:
    single, several = load_target(llama).tensors, load_target(shards).tensors
    assert single.keys() == several.keys()
    assert all(torch.equal(single[name], several[name]) for name in single)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("../llama/model.safetensors", "expected a .safetensors file beside the index"),
        ("pytorch_model-00001.bin", "expected a .safetensors file beside the index"),
        ("model-00099-of-00099.safetensors", "which does not exist"),
    ],
)
def test_index_that_names_a_wrong_file(shards: Path, file: str, message: str) -> None:
    edit_index(shards, lambda weight_map: weight_map.update({NORM: file}))
    with pytest.raises(CheckpointError, match=f"weight_map names '{file}'.*{message}"):
        load_target(shards)


def test_index_that_names_the_wrong_shard(shards: Path) -> None:
    def swap(weight_map: dict[str, str]) -> None:
        weight_map[NORM] = next(file for file in sorted(set(weight_map.values())) if file != weight_map[NORM])

    edit_index(shards, swap)
    with pytest.raises(CheckpointError, match=f"tensor {NORM} is missing, although the index"):
        load_target(shards)


def test_index_without_a_tensor(shards: Path) -> None:
    edit_index(shards, lambda weight_map: weight_map.pop(NORM))
    with pytest.raises(CheckpointError, match=f"tensor {NORM} is missing"):
        load_target(shards)


def test_index_without_a_map(shards: Path) -> None:
    (shards / "model.safetensors.index.json").write_text('{"weight_map": 3}')
    with pytest.raises(CheckpointError, match="weight_map is int; an object of file names is needed"):
        load_target(shards)
