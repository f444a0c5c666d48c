"""Reading hybrid checkpoints: both forms of config.json, and a clear error for each thing that can be wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftproof.reference.config import CheckpointError, Config, Rope
from draftproof.reference.hybrid_checkpoint import load_hybrid, load_mtp, read_target_config
from draftproof.reference.hybrid_config import Experts, HybridConfig, Linear, parse_hybrid_config
from tests.checkpoints import tiny_llama, tiny_qwen3_5, tiny_qwen3_next

L, F = "linear_attention", "full_attention"
# The fields of a published Qwen3-Next config.json as transformers 4 wrote it: no layer_types, RoPE at the top.
NEXT: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "eos_token_id": 7,
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 64,
    "max_position_embeddings": 262144,
    "mlp_only_layers": [],
    "moe_intermediate_size": 500,
    "norm_topk_prob": True,
    "num_attention_heads": 18,
    "num_experts": 510,
    "num_experts_per_tok": 10,
    "num_hidden_layers": 8,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.25,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 10000000,
    "shared_expert_intermediate_size": 512,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
ROPE = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}
DENSE: dict[str, Any] = {**NEXT, "architectures": ["Qwen3_5ForCausalLM"]}


def parse(base: dict[str, Any] = NEXT, **fields: Any) -> HybridConfig:
    config = {name: value for name, value in {**base, **fields}.items() if value is not ...}
    return parse_hybrid_config(json.dumps(config))


def test_config_of_transformers_4() -> None:
    assert parse() == HybridConfig(
        architecture="Qwen3NextForCausalLM",
        types=(L, L, L, F, L, L, L, F),
        heads=18,
        kv_heads=2,
        head_dim=256,
        rotary_dim=64,
        hidden=2048,
        intermediate=None,
        vocab=151936,
        eps=1e-6,
        rope=Rope(1e7, None),
        linear=Linear(key_heads=16, value_heads=32, key_dim=128, value_dim=64, conv=4),
        experts=Experts(total=510, chosen=10, intermediate=500, shared_intermediate=512, normalised=True),
        sparse=(True,) * 8,
        tie_word_embeddings=False,
        max_position_embeddings=262144,
        eos=(7,),
    )
    assert parse().linear.channels == 2 * 16 * 128 + 32 * 64
    assert parse().interleaved


def test_config_of_transformers_5(tmp_path: Path) -> None:
    config = read_target_config(tiny_qwen3_next(tmp_path / "next"))
    assert isinstance(config, HybridConfig)
    assert (config.types, config.sparse) == ((L, L, F, L, F), (True, False, True, True, True))
    assert (config.rope, config.rotary_dim, config.intermediate) == (Rope(1e4, None), 4, 44)
    config = read_target_config(tiny_qwen3_5(tmp_path / "qwen3_5"))
    assert isinstance(config, HybridConfig)
    assert (config.types, config.sparse, config.experts) == ((L, L, F, L), (False,) * 4, None)
    assert (config.rope, config.rotary_dim, config.interleaved) == (Rope(1e5, None), 12, False)
    assert isinstance(read_target_config(tiny_llama(tmp_path / "llama")), Config)


def test_fields_that_may_be_absent() -> None:
    absent = ("full_attention_interval", "mlp_only_layers", "norm_topk_prob", "partial_rotary_factor", "rope_scaling")
    fields: dict[str, Any] = dict.fromkeys((*absent, "decoder_sparse_step", "attention_bias", "hidden_act"), ...)
    assert parse(**fields) == parse()
    assert parse(intermediate_size=...) == parse()
    assert parse(rope_theta=...).rope == Rope(1e4, None)


def test_old_and_new_rope_mean_the_same() -> None:
    assert parse(rope_theta=..., partial_rotary_factor=..., rope_scaling=..., rope_parameters=ROPE) == parse()
    # The factor inside wins, as in transformers.
    assert parse(partial_rotary_factor=0.5, rope_parameters=ROPE) == parse()
    assert parse(partial_rotary_factor=0.5).rotary_dim == 128


def test_mrope_of_text_is_rope() -> None:
    mrope = {**ROPE, "mrope_section": [11, 11, 10], "mrope_interleaved": True}
    assert parse(DENSE, rope_parameters=mrope) == parse(DENSE)
    with pytest.raises(CheckpointError, match=r"rope_parameters\.mrope_\w+ is .*unsupported"):
        parse(rope_parameters=mrope)


def test_which_layers_have_experts() -> None:
    assert parse(decoder_sparse_step=2, mlp_only_layers=[3]).sparse == (False, True, False, False) + (False, True) * 2
    plain = parse(num_experts=0)
    assert (plain.experts, plain.sparse, plain.intermediate) == (None, (False,) * 8, 5120)
    moe = parse({**DENSE, "architectures": ["Qwen3_5MoeForCausalLM"], "norm_topk_prob": False, "mlp_only_layers": [1]})
    assert moe.sparse == (True,) * 8
    assert moe.experts is not None
    assert moe.experts.normalised
    assert parse(norm_topk_prob=False).experts == Experts(510, 10, 500, 512, normalised=False)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architectures": ["Qwen3ForCausalLM"]}, r"architectures is \['Qwen3ForCausalLM'\].*Qwen3NextForCausalLM"),
        ({"layer_types": [L, F]}, "layer_types is .*allowed: 8 of"),
        ({"layer_types": [L] * 7 + ["sliding_attention"]}, "layer_types is .*sliding_attention"),
        ({"full_attention_interval": 0}, "full_attention_interval is 0; allowed"),
        ({"num_key_value_heads": 4}, "num_key_value_heads is 4; allowed: divisors of 18"),
        ({"linear_num_key_heads": 12}, "linear_num_key_heads is 12; allowed: divisors of 32"),
        ({"linear_conv_kernel_dim": ...}, "linear_conv_kernel_dim is missing"),
        ({"head_dim": ...}, "head_dim is missing"),
        ({"partial_rotary_factor": 1.5}, r"partial_rotary_factor is 1\.5; allowed: at most 1"),
        ({"head_dim": 20}, "partial_rotary_factor is 0.25; .*even number of components .*20"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn'"),
        ({"rope_parameters": {**ROPE, "beta_fast": 32}}, r"rope_parameters\.beta_fast is 32, which is unsupported"),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 128,
                }
            },
            "rope_type is 'llama3', which is unsupported; allowed: 'default'",
        ),
        ({"num_experts": -1}, "num_experts is -1; allowed"),
        ({"num_experts_per_tok": 511}, "num_experts_per_tok is 511; allowed: 1 .. 510"),
        ({"norm_topk_prob": "yes"}, "norm_topk_prob is 'yes'; allowed: true or false"),
        ({"decoder_sparse_step": 0}, "decoder_sparse_step is 0"),
        ({"mlp_only_layers": ["0"]}, r"mlp_only_layers is \['0'\]; allowed: layer numbers"),
        ({"mlp_only_layers": [1], "intermediate_size": ...}, "intermediate_size is missing"),
        ({"attention_bias": True}, "attention_bias is True, which is unsupported; allowed: False"),
        ({"attn_output_gate": False}, "attn_output_gate is False, which is unsupported; allowed: True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"use_sliding_window": True}, "use_sliding_window is True"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is .*unsupported"),
    ],
)
def test_bad_config(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        parse(**fields)


def test_an_unknown_architecture_names_all_that_are_known(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["MambaForCausalLM"]}))
    with pytest.raises(CheckpointError, match=r"Mamba.*LlamaForCausalLM.*Qwen3NextForCausalLM.*Qwen3_5ForCausalLM"):
        read_target_config(tmp_path)


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
        load_hybrid(path)


def test_a_tensor_of_another_shape(tmp_path: Path) -> None:
    path, name = tiny_qwen3_5(tmp_path), "model.layers.0.linear_attn.conv1d.weight"
    edit_tensors(path, lambda tensors: tensors.update({name: tensors[name][:, 0].contiguous()}))
    with pytest.raises(CheckpointError, match=rf"{name} has shape \(96, 3\); config\.json asks for \(96, 1, 3\)"):
        load_hybrid(path)


def test_a_vision_tower_is_ignored(tmp_path: Path) -> None:
    path = tiny_qwen3_5(tmp_path)
    before = load_hybrid(path).tensors
    edit_tensors(path, lambda tensors: tensors.update({"model.visual.blocks.0.norm1.weight": torch.ones(3)}))
    after = load_hybrid(path).tensors
    assert before.keys() == after.keys()
    assert load_mtp(path, load_hybrid(path).config).keys() >= {"fc.weight", "layers.0.self_attn.q_proj.weight"}


@pytest.mark.parametrize("name", ["mtp.embed_tokens.weight", "mtp.layers.1.input_layernorm.weight", "mtp.fc.bias"])
def test_a_tensor_of_another_mtp_layer(tmp_path: Path, name: str) -> None:
    path = tiny_qwen3_next(tmp_path)
    edit_tensors(path, lambda tensors: tensors.update({name: torch.ones(30)}))
    config = load_hybrid(path).config
    with pytest.raises(CheckpointError, match=f"tensor {name} is unknown"):
        load_mtp(path, config)
