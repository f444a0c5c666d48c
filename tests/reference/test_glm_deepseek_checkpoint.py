"""Reading GLM-4-MoE and DeepSeek-V3 checkpoints: defaults, published forms, and a clear error for each bad field."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from draftproof.reference.config import CheckpointError, Rope
from draftproof.reference.hybrid_checkpoint import read_target_config
from draftproof.reference.sparse_checkpoint import load_sparse
from draftproof.reference.sparse_config import Latent, SparseConfig, parse_sparse_config
from tests.checkpoints import tiny_deepseek_v3, tiny_glm4_moe

# Fields of published config.json files as transformers 4 wrote them, with RoPE at the top.
GLM: dict[str, Any] = {
    "architectures": ["Glm4MoeForCausalLM"],
    "attention_bias": True,
    "eos_token_id": [7, 9],
    "first_k_dense_replace": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 10944,
    "max_position_embeddings": 131072,
    "moe_intermediate_size": 1408,
    "n_group": 1,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 96,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 46,
    "num_key_value_heads": 8,
    "num_nextn_predict_layers": 1,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "routed_scaling_factor": 1.0,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "use_qk_norm": False,
    "vocab_size": 151552,
}
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "attention_bias": False,
    "eos_token_id": 1,
    "ep_size": 1,
    "first_k_dense_replace": 3,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "tie_word_embeddings": False,
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "v_head_dim": 128,
    "vocab_size": 129280,
}


def parse(base: dict[str, Any], **fields: Any) -> SparseConfig:
    config = {name: value for name, value in {**base, **fields}.items() if value is not ...}
    return parse_sparse_config(json.dumps(config))


def test_published_fields() -> None:
    glm, deepseek = parse(GLM), parse(DEEPSEEK)
    assert (glm.head_dim, glm.rotary_dim, glm.bias, glm.qk_norm, glm.latent) == (128, 64, True, False, None)
    assert (glm.rope, glm.eos, glm.mtp_layers) == (Rope(1e6, None), (7, 9), 1)
    assert deepseek.latent == Latent(q_rank=1536, kv_rank=512, nope=128, rope=64, value=128, interleaved=True)
    assert (deepseek.kv_heads, deepseek.dense_layers, deepseek.experts.chosen_groups) == (128, 3, 4)
    assert deepseek.experts.scale == 2.5


def test_defaults_are_those_of_transformers() -> None:
    absent = dict.fromkeys(("first_k_dense_replace", "n_group", "topk_group", "routed_scaling_factor"), ...)
    absent |= dict.fromkeys(("n_shared_experts", "norm_topk_prob", "num_nextn_predict_layers", "attention_bias"), ...)
    glm = parse(
        GLM, **absent, head_dim=..., partial_rotary_factor=..., use_qk_norm=..., rope_theta=..., hidden_size=6144
    )
    assert (glm.dense_layers, glm.experts.groups, glm.experts.chosen_groups, glm.experts.scale) == (1, 1, 1, 1.0)
    assert (glm.head_dim, glm.rotary_dim, glm.qk_norm, glm.bias, glm.mtp_layers) == (64, 32, False, False, 1)
    assert (glm.experts.normalised, glm.experts.shared_intermediate, glm.rope.theta) == (True, 1408, 10000.0)
    deepseek = parse(DEEPSEEK, **absent, num_key_value_heads=...)
    assert (deepseek.dense_layers, deepseek.experts.groups, deepseek.experts.chosen_groups) == (3, 8, 4)
    assert (deepseek.experts.scale, deepseek.kv_heads, deepseek.mtp_layers) == (2.5, 128, 1)


def test_other_forms() -> None:
    assert parse(GLM, num_nextn_predict_layers=..., num_mtp_layers=3).mtp_layers == 3
    assert parse(GLM, first_k_dense_replace=0).dense_layers == 0
    assert parse(GLM, first_k_dense_replace=99).dense_layers == 46
    assert parse(GLM, n_shared_experts=2).experts.shared_intermediate == 2816
    own = {"rope_type": "default", "rope_theta": 5.0, "partial_rotary_factor": 0.25}
    nested = parse(GLM, rope_parameters=own, partial_rotary_factor=...)
    assert (nested.rope.theta, nested.rotary_dim) == (5.0, 32)
    plain = parse(DEEPSEEK, q_lora_rank=None, rope_interleave=False).latent
    assert plain is not None
    assert (plain.q_rank, plain.interleaved) == (None, False)


@pytest.mark.parametrize(
    ("base", "fields", "message"),
    [
        (GLM, {"n_group": 3}, "n_group is 3; allowed: divisors of 128"),
        (GLM, {"n_group": 128}, "n_group is 128; allowed: at least 2 of the 128"),
        (GLM, {"topk_group": 2}, r"topk_group is 2; allowed: 1 \.\. 1 \(n_group\)"),
        (DEEPSEEK, {"num_experts_per_tok": 129}, r"num_experts_per_tok is 129; allowed: 1 \.\. 128"),
        (GLM, {"num_key_value_heads": 7}, "num_key_value_heads is 7; allowed: divisors of 96"),
        (DEEPSEEK, {"num_key_value_heads": 64}, "num_key_value_heads is 64; allowed: 128"),
        (GLM, {"first_k_dense_replace": -1}, "first_k_dense_replace is -1; allowed: an integer of at least 0"),
        (GLM, {"n_shared_experts": 0}, "n_shared_experts is 0; allowed: an integer of at least 1"),
        (GLM, {"routed_scaling_factor": 0}, "routed_scaling_factor is 0; allowed: a finite number above 0"),
        (GLM, {"num_mtp_layers": 2}, "num_mtp_layers is 2; allowed: 1, the value of num_nextn_predict_layers"),
        (
            GLM,
            {"num_nextn_predict_layers": True},
            "num_nextn_predict_layers is True; allowed: an integer of at least 0",
        ),
        (GLM, {"moe_intermediate_size": ...}, "moe_intermediate_size is missing"),
        (GLM, {"partial_rotary_factor": 2.0}, "partial_rotary_factor is 2.0; allowed: at most 1"),
        (GLM, {"attention_bias": 1}, "attention_bias is 1; allowed: true or false"),
        (GLM, {"hidden_act": "gelu"}, "hidden_act is 'gelu', which is unsupported"),
        (GLM, {"quantization_config": {"bits": 8}}, "quantization_config is .*; allowed: None"),
        (GLM, {"layer_types": ["sliding_attention"]}, "layer_types has .*sliding_attention"),
        (GLM, {"rope_parameters": {"rope_type": "yarn", "factor": 40}}, "rope_type is 'yarn', which is unsupported"),
        (DEEPSEEK, {"rope_scaling": {"type": "yarn", "factor": 40}}, "rope_type is 'yarn', which is unsupported"),
        (DEEPSEEK, {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, which is unsupported; allowed: 1.0"),
        (DEEPSEEK, {"scoring_func": "softmax"}, "scoring_func is 'softmax', which is unsupported"),
        (DEEPSEEK, {"topk_method": "greedy"}, "topk_method is 'greedy', which is unsupported"),
        (DEEPSEEK, {"moe_layer_freq": 2}, "moe_layer_freq is 2, which is unsupported"),
        (DEEPSEEK, {"q_lora_rank": ...}, "q_lora_rank is missing; allowed: an integer of at least 1, or null"),
        (DEEPSEEK, {"q_lora_rank": 0}, "q_lora_rank is 0; allowed: an integer of at least 1"),
        (DEEPSEEK, {"qk_rope_head_dim": 7}, "qk_rope_head_dim is 7; allowed: even"),
        (DEEPSEEK, {"kv_lora_rank": None}, "kv_lora_rank is None; allowed: an integer"),
        (DEEPSEEK, {"rope_interleave": "yes"}, "rope_interleave is 'yes'; allowed: true or false"),
    ],
)
def test_bad_fields(base: dict[str, Any], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        parse(base, **fields)


def test_llama3_scaling_is_refused() -> None:
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}
    for base in (GLM, DEEPSEEK):
        with pytest.raises(CheckpointError, match="rope_type is 'llama3', which is unsupported; allowed: 'default'"):
            parse(base, rope_parameters={"rope_type": "llama3", "rope_theta": 1e4, **scaling})


WRITERS = {"glm": tiny_glm4_moe, "deepseek": tiny_deepseek_v3}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_tensors_are_all_known_and_all_there(writer: Callable[..., Path], tmp_path: Path) -> None:
    path = writer(tmp_path, attention_bias=True)
    assert isinstance(read_target_config(path), SparseConfig)
    stored = load_file(path / "model.safetensors")
    checkpoint = load_sparse(path)
    assert set(checkpoint.tensors) == {name for name in stored if not name.startswith("model.layers.3.")}
    kept = {name: array for name, array in stored.items() if name != "model.layers.1.mlp.gate.e_score_correction_bias"}
    save_file(kept, path / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=r"tensor model\.layers\.1\.mlp\.gate\.e_score_correction_bias is missing"
    ):
        load_sparse(path)
    save_file({**stored, "model.layers.4.eh_proj.weight": stored["model.norm.weight"]}, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"tensor model\.layers\.4\.eh_proj\.weight is unknown"):
        load_sparse(path)
    save_file({**stored, "model.norm.weight": stored["model.norm.weight"][:3]}, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"tensor model\.norm\.weight has shape \(3,\); config\.json asks for"):
        load_sparse(path)
