"""Reading checkpoints: both forms of config.json, and a clear error for each thing that can be wrong."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from draftproof.reference.checkpoint import load_checkpoint, read_config
from draftproof.reference.config import CheckpointError, Config, Llama3Scaling, Rope, parse_config
from tests.checkpoints import LLAMA3_ROPE, SIZES, tiny_llama, tiny_qwen3, write

NORM = "model.layers.1.post_attention_layernorm.weight"
LLAMA3 = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_len=128)
# A config.json as transformers 4 wrote it for a Llama: no head_dim, rope_theta at the top.
OLD: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 48,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 500000.0,
    "vocab_size": 77,
}


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


def parse(**fields: Any) -> Config:
    config = {name: value for name, value in {**OLD, **fields}.items() if value is not ...}
    return parse_config(json.dumps(config))


def test_config_of_transformers_5(tmp_path: Path) -> None:
    config = read_config(tiny_qwen3(tmp_path, rope_parameters=LLAMA3_ROPE, eos_token_id=[1, 5]))
    assert config == Config(
        architecture="Qwen3ForCausalLM",
        layers=3,
        heads=6,
        kv_heads=2,
        head_dim=16,
        hidden=30,
        intermediate=44,
        vocab=53,
        eps=1e-5,
        rope=Rope(10000.0, LLAMA3),
        tie_word_embeddings=False,
        max_position_embeddings=256,
        eos=(1, 5),
    )
    assert config.qk_norm


def test_config_of_transformers_4() -> None:
    config = parse()
    assert (config.kv_heads, config.head_dim, config.eos, config.qk_norm) == (4, 8, (2,), False)
    assert (config.rope, config.tie_word_embeddings) == (Rope(500000.0, None), False)
    assert parse(head_dim=None, num_key_value_heads=None) == config
    assert parse(eos_token_id=None).eos == ()
    assert parse(rope_theta=...).rope.theta == 10000.0


@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_old_and_new_rope_mean_the_same(key: str) -> None:
    scaling = {name: value for name, value in LLAMA3_ROPE.items() if name not in ("rope_type", "rope_theta")}
    old = parse(rope_theta=10000.0, rope_scaling={**scaling, key: "llama3"})
    new = parse(rope_theta=..., rope_scaling=..., rope_parameters=LLAMA3_ROPE)
    assert old == new
    assert new.rope == Rope(10000.0, LLAMA3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architectures": ["MistralForCausalLM"]}, r"architectures is \['MistralForCausalLM'\].*LlamaForCausalLM"),
        ({"architectures": ...}, "architectures is None"),
        ({"hidden_size": ...}, "hidden_size is missing; allowed: an integer"),
        ({"hidden_size": "32"}, "hidden_size is '32'; allowed: an integer of at least 1"),
        ({"vocab_size": 0}, "vocab_size is 0; allowed"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True; allowed"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3; allowed: divisors of 4"),
        ({"head_dim": 7}, "head_dim is 7; allowed: even"),
        ({"rms_norm_eps": 0}, "rms_norm_eps is 0; allowed: a finite number above 0"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"rope_theta": -1.0}, r"rope_theta is -1\.0"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type is 'linear'.*'default' or 'llama3'"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_parameters.rope_type is 'yarn'"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
            r"rope_parameters\.full_attention is \{.*unsupported; allowed: rope_type",
        ),
        ({"rope_parameters": {**LLAMA3_ROPE, "factor": None}}, "rope_parameters: factor is None"),
        ({"rope_parameters": {**LLAMA3_ROPE, "high_freq_factor": 1}}, "high_freq_factor is 1.0; allowed: above"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ({"rope_scaling": 3}, "rope_scaling is 3; allowed: a JSON object"),
        ({"attention_bias": True}, "attention_bias is True, which is unsupported; allowed: False"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'.*allowed: 'silu'"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types has .*sliding_attention"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is .*unsupported"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'; allowed: true or false"),
        ({"eos_token_id": "</s>"}, "eos_token_id is '</s>'; allowed"),
        ({"architectures": ["Qwen3ForCausalLM"], "num_key_value_heads": 2}, "head_dim is missing"),
    ],
)
def test_bad_config(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        parse(**fields)


def test_every_field_of_the_neutral_ones_may_be_neutral() -> None:
    neutral = {"attention_bias": False, "mlp_bias": False, "use_sliding_window": False, "quantization_config": None}
    assert parse(**neutral, layer_types=["full_attention"] * 3, partial_rotary_factor=1.0) == parse()


@pytest.mark.parametrize("text", ["{", "[1]", '"x"', ""])
def test_broken_json(llama: Path, text: str) -> None:
    (llama / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json: (broken JSON|top level is).*JSON object is needed"):
        load_checkpoint(llama)


def test_config_that_is_not_text(llama: Path) -> None:
    (llama / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CheckpointError, match="not UTF-8"):
        load_checkpoint(llama)


def test_no_config(llama: Path) -> None:
    (llama / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json: no such file"):
        load_checkpoint(llama)


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: no such file"):
        load_checkpoint(tmp_path / "nowhere")


def test_no_weights(llama: Path) -> None:
    (llama / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"no weights found; allowed: model\.safetensors"):
        load_checkpoint(llama)


def test_a_pickle_is_never_opened(llama: Path) -> None:
    (llama / "model.safetensors").rename(llama / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"found the pickle pytorch_model\.bin, which is never opened"):
        load_checkpoint(llama)


def test_missing_tensor(llama: Path) -> None:
    edit_tensors(llama, lambda tensors: tensors.pop(NORM))
    with pytest.raises(CheckpointError, match=f"tensor {NORM} is missing"):
        load_checkpoint(llama)


def test_untied_model_without_lm_head(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path, tie_word_embeddings=True)
    edit_config(path, tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match=r"tensor lm_head\.weight is missing"):
        load_checkpoint(path)


def test_tied_model_that_stores_lm_head_too(llama: Path) -> None:
    edit_config(llama, tie_word_embeddings=True)
    tensors = load_checkpoint(llama).tensors
    assert tensors["lm_head.weight"] is tensors["model.embed_tokens.weight"]


def test_wrong_shape(llama: Path) -> None:
    edit_config(llama, intermediate_size=43)
    with pytest.raises(CheckpointError, match=r"mlp\.\w+_proj\.weight has shape \(.*44.*\); config.json asks for .*43"):
        load_checkpoint(llama)


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.q_proj.bias", "model.layers.3.mlp.up_proj.weight"])
def test_tensor_that_nobody_would_read(llama: Path, name: str) -> None:
    edit_tensors(llama, lambda tensors: tensors.update({name: torch.ones(3)}))
    with pytest.raises(CheckpointError, match=f"tensor {name} is unknown to the architecture"):
        load_checkpoint(llama)


def test_stored_rotary_frequencies_are_passed_over(llama: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit_tensors(llama, lambda tensors: tensors.update({name: torch.ones(8)}))
    assert name not in load_checkpoint(llama).tensors


def test_integer_tensor(llama: Path) -> None:
    edit_tensors(llama, lambda tensors: tensors.update({NORM: tensors[NORM].to(torch.int8)}))
    with pytest.raises(CheckpointError, match=r"has dtype torch\.int8; allowed: torch\.float64"):
        load_checkpoint(llama)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_tensor_that_is_not_finite(llama: Path, value: float) -> None:
    edit_tensors(llama, lambda tensors: tensors[NORM].fill_(value))
    with pytest.raises(CheckpointError, match=f"tensor {NORM} holds NaN or infinity"):
        load_checkpoint(llama)


@pytest.mark.parametrize("size", [0, 4, 100, -1])
def test_truncated_file(llama: Path, size: int) -> None:
    file = llama / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: broken or truncated safetensors file"):
        load_checkpoint(llama)


def test_header_that_lies_about_its_length(llama: Path) -> None:
    file = llama / "model.safetensors"
    file.write_bytes(struct.pack("<Q", 1 << 60) + file.read_bytes()[8:])
    with pytest.raises(CheckpointError, match="broken or truncated"):
        load_checkpoint(llama)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    path = write(LlamaForCausalLM(LlamaConfig(**SIZES)), tmp_path, seed=0, max_shard_size="20KB")
    assert len(list(path.glob("model-*.safetensors"))) > 2
    return path


def edit_index(path: Path, change: Callable[[dict[str, str]], Any]) -> None:
    file = path / "model.safetensors.index.json"
    index = json.loads(file.read_text())
    change(index["weight_map"])
    file.write_text(json.dumps(index))


def test_shards_equal_a_single_file(shards: Path, llama: Path) -> None:
    single, several = load_checkpoint(llama).tensors, load_checkpoint(shards).tensors
    assert single.keys() == several.keys()
    assert all(torch.equal(single[name], several[name]) for name in single)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("../llama/model.safetensors", "allowed: a .safetensors file beside the index"),
        ("pytorch_model-00001.bin", "allowed: a .safetensors file beside the index"),
        ("model-00099-of-00099.safetensors", "which does not exist"),
    ],
)
def test_index_that_names_a_wrong_file(shards: Path, file: str, message: str) -> None:
    edit_index(shards, lambda weight_map: weight_map.update({NORM: file}))
    with pytest.raises(CheckpointError, match=f"weight_map names '{file}'.*{message}"):
        load_checkpoint(shards)


def test_index_that_names_the_wrong_shard(shards: Path) -> None:
    def swap(weight_map: dict[str, str]) -> None:
        weight_map[NORM] = next(file for file in sorted(set(weight_map.values())) if file != weight_map[NORM])

    edit_index(shards, swap)
    with pytest.raises(CheckpointError, match=f"tensor {NORM} is missing, although the index"):
        load_checkpoint(shards)


def test_index_without_a_tensor(shards: Path) -> None:
    edit_index(shards, lambda weight_map: weight_map.pop(NORM))
    with pytest.raises(CheckpointError, match=f"tensor {NORM} is missing"):
        load_checkpoint(shards)


def test_index_without_a_map(shards: Path) -> None:
    (shards / "model.safetensors.index.json").write_text('{"weight_map": 3}')
    with pytest.raises(CheckpointError, match="weight_map is int; an object of file names is needed"):
        load_checkpoint(shards)
