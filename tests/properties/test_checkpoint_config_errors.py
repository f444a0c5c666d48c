"""Every field of config.json that can be wrong is named, with what was expected."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftproof.properties.formats import checkpoint_config as ours
from draftproof.properties.formats.checkpoint_config import parse_config, read_config
from draftproof.properties.formats.checkpoint_config.base import (
    DecoderConfig,
)
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig, check_head_fits
from draftproof.properties.lib.errors import CheckpointError
from tests.checkpoints import LLAMA3_ROPE
from tests.properties.configs import (
    DEEPSEEK,
    DFLASH,
    GLM,
    LLAMA,
    NEXT,
    QWEN3,
    QWEN3_5_DENSE,
    QWEN3_5_SPARSE,
    parse,
)

EVERY = {
    "LLAMA": LLAMA,
    "QWEN3": QWEN3,
    "NEXT": NEXT,
    "QWEN3_5_DENSE": QWEN3_5_DENSE,
    "QWEN3_5_SPARSE": QWEN3_5_SPARSE,
    "GLM": GLM,
    "DEEPSEEK": DEEPSEEK,
    "DFLASH": DFLASH,
}
FULL, LINEAR, SLIDING = "full_attention", "linear_attention", "sliding_attention"
DENSE, LINEARS, SPARSE = ("LLAMA", "QWEN3"), ("NEXT", "QWEN3_5_DENSE", "QWEN3_5_SPARSE"), ("GLM", "DEEPSEEK")

TARGETS = (*DENSE, *LINEARS, *SPARSE)
REFUSED: list[tuple[tuple[str, ...], dict[str, Any], str]] = [
    (tuple(EVERY), {"hidden_size": 0}, "invalid hidden_size 0 in config.json: expected `int` >= 1"),
    (tuple(EVERY), {"hidden_size": ...}, "hidden_size None .*expected a value, it is missing"),
    (tuple(EVERY), {"hidden_size": "32"}, "hidden_size '32' .*expected `int`, got `str`"),
    (tuple(EVERY), {"num_hidden_layers": True}, "num_hidden_layers True .*expected `int`, got `bool`"),
    (tuple(EVERY), {"num_hidden_layers": "2"}, "num_hidden_layers '2' .*expected `int`"),
    (tuple(EVERY), {"rms_norm_eps": 0}, "rms_norm_eps 0 .*expected `float` > 0"),
    (tuple(EVERY), {"rms_norm_eps": float("nan")}, "rms_norm_eps nan .*expected `float` > 0"),
    (tuple(EVERY), {"rms_norm_eps": float("inf")}, "rms_norm_eps inf .*expected `float` <= 1"),
    (tuple(EVERY), {"rope_theta": -1.0}, r"rope_parameters\.rope_theta -1\.0 .*expected `float` > 0"),
    (tuple(EVERY), {"hidden_act": "gelu"}, "invalid hidden_act 'gelu' .*expected 'silu', the only"),
    (tuple(EVERY), {"quantization_config": {"bits": 4}}, "quantization_config .*expected None, the only"),
    (
        tuple(EVERY),
        {"rope_parameters": {"rope_type": "yarn"}},
        "rope_type of rope_parameters 'yarn' .*default",
    ),
    (tuple(EVERY), {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type of rope_scaling 'linear'"),
    (tuple(EVERY), {"rope_parameters": 7}, "rope_parameters 7 .*expected an object"),
    (tuple(EVERY), {"rope_scaling": 3}, "rope_scaling 3 .*expected an object"),
    (tuple(EVERY), {"rope_parameters": {"beta_fast": 32}}, r"rope_parameters\.beta_fast 32 .*expected none"),
    (
        tuple(EVERY),
        {"layer_types": [SLIDING] * 2, "num_hidden_layers": 2},
        "layer_types .*sliding.*expected",
    ),
    (tuple(EVERY), {"layer_types": [FULL]}, "layer_types .*expected num_hidden_layers"),
    (tuple(EVERY), {"layer_types": 5}, "layer_types 5 .*expected `array"),
    (TARGETS, {"vocab_size": 0}, "vocab_size 0"),
    (TARGETS, {"tie_word_embeddings": "yes"}, "tie_word_embeddings 'yes' .*expected `bool`"),
    (TARGETS, {"eos_token_id": "</s>"}, "eos_token_id '</s>'"),
    (
        TARGETS,
        {"architectures": ["GPT2LMHeadModel"]},
        r"architectures \['GPT2LMHeadModel'\] .*LlamaForCausalLM, .*Qwen3F",
    ),
    (TARGETS, {"architectures": ...}, "architectures None .*expected one of LlamaForCausalLM, .*Qwen3NextForCausalLM"),
    (TARGETS, {"mlp_bias": True}, "mlp_bias True .*expected False"),
    (TARGETS, {"use_sliding_window": True}, "use_sliding_window True .*expected False"),
    (TARGETS, {"text_config": 3}, "text_config 3 .*expected an object"),
    (DENSE, {"num_key_value_heads": 3}, r"num_key_value_heads 3 .*expected a divisor of num_attention_heads \(4\)"),
    (DENSE, {"head_dim": 7}, "head_dim 7 .*multiple of 2"),
    (("LLAMA",), {"hidden_size": 36}, "head_dim 9 .*expected an even number"),
    (("QWEN3",), {"head_dim": ...}, "head_dim None .*missing"),
    (("QWEN3",), {"num_key_value_heads": ...}, "num_key_value_heads None .*missing"),
    (DENSE, {"rope_parameters": {**LLAMA3_ROPE, "factor": None}}, r"rope_parameters\.factor None .*missing"),
    (DENSE, {"rope_parameters": {"rope_type": "llama3"}}, r"rope_parameters\.factor None .*missing"),
    (DENSE, {"rope_parameters": {**LLAMA3_ROPE, "high_freq_factor": 1}}, "high_freq_factor 1.0 .*expected above"),
    (DENSE, {"rope_parameters": {"full_attention": {}}}, r"rope_parameters\.full_attention \{\} .*expected none"),
    ((*DENSE, "DEEPSEEK", "DFLASH"), {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 .*expected 1.0"),
    ((*DENSE, "DEEPSEEK"), {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor 0.5 .*1.0"),
    ((*DENSE, *LINEARS), {"attention_bias": True}, "attention_bias True .*expected False"),
    ((*LINEARS, *SPARSE, "DFLASH"), {"rope_parameters": LLAMA3_ROPE}, "'llama3' .*expected default"),
    (LINEARS, {"attn_output_gate": False}, "attn_output_gate False .*expected True"),
    (LINEARS, {"full_attention_interval": 0}, "full_attention_interval 0"),
    (LINEARS, {"num_key_value_heads": 4}, r"num_key_value_heads 4 .*a divisor of num_attention_heads \(18\)"),
    (LINEARS, {"linear_num_key_heads": 12}, r"linear_num_key_heads 12 .*a divisor of linear_num_value_heads \(32\)"),
    (LINEARS, {"linear_num_value_heads": -6}, "linear_num_value_heads -6"),
    (LINEARS, {"linear_key_head_dim": 1.5}, "linear_key_head_dim 1.5 .*expected `int`"),
    (LINEARS, {"linear_value_head_dim": "a"}, "linear_value_head_dim 'a'"),
    (LINEARS, {"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim 1 .*expected `int` >= 2"),
    (LINEARS, {"linear_conv_kernel_dim": ...}, "linear_conv_kernel_dim None .*missing"),
    (LINEARS, {"head_dim": ...}, "head_dim None .*missing"),
    (LINEARS, {"head_dim": 20}, r"partial_rotary_factor 0.25 .*an even part of head_dim \(20\)"),
    (LINEARS, {"layer_types": ["mamba"] * 8}, "layer_types .*'full_attention' or 'linear_attention'"),
    ((*LINEARS, "GLM"), {"partial_rotary_factor": 2.0}, "partial_rotary_factor 2.0 .*an even part of head_dim"),
    ((*LINEARS, "GLM"), {"partial_rotary_factor": 0.001}, "partial_rotary_factor 0.001 .*an even part of head_dim"),
    (
        ("NEXT", "QWEN3_5_SPARSE"),
        {"num_experts_per_tok": 511},
        r"num_experts_per_tok 511 .*510 \(num_experts\)",
    ),
    (("NEXT", "QWEN3_5_SPARSE"), {"num_experts": -1}, "num_experts -1"),
    (("NEXT", "QWEN3_5_SPARSE"), {"moe_intermediate_size": None}, "moe_intermediate_size None"),
    (("NEXT", "QWEN3_5_SPARSE"), {"shared_expert_intermediate_size": ...}, "shared_expert_intermediate_size None"),
    (("NEXT", *SPARSE), {"norm_topk_prob": "yes"}, "norm_topk_prob 'yes' .*expected `bool`"),
    (("NEXT",), {"decoder_sparse_step": 0}, "decoder_sparse_step 0"),
    (("NEXT",), {"mlp_only_layers": ["0"]}, r"mlp_only_layers\[0\] '0' .*expected `int`"),
    (("NEXT",), {"mlp_only_layers": [1.5]}, r"mlp_only_layers\[0\] 1.5 .*expected `int`"),
    (("NEXT",), {"mlp_only_layers": [1], "intermediate_size": ...}, "intermediate_size None .*no experts"),
    (("NEXT",), {"decoder_sparse_step": 2, "intermediate_size": ...}, "intermediate_size None .*no experts"),
    (("NEXT",), {"num_experts": 0, "intermediate_size": ...}, "intermediate_size None .*no experts"),
    (("QWEN3_5_DENSE",), {"num_experts": 8}, "num_experts 8 .*expected 0"),
    (SPARSE, {"scoring_func": "softmax"}, "scoring_func 'softmax' .*expected 'sigmoid'"),
    (SPARSE, {"topk_method": "greedy"}, "topk_method 'greedy' .*expected 'noaux_tc'"),
    (SPARSE, {"moe_layer_freq": 2}, "moe_layer_freq 2 .*expected 1"),
    (SPARSE, {"mtp_hidden_states_first": True}, "mtp_hidden_states_first True .*expected False"),
    (SPARSE, {"layer_types": [LINEAR] * 3, "num_hidden_layers": 3}, "layer_types .*times 'full_attention'"),
    (SPARSE, {"attention_bias": "yes"}, "attention_bias 'yes' .*expected `bool`"),
    (SPARSE, {"attention_bias": 1}, "attention_bias 1 .*expected `bool`"),
    (SPARSE, {"first_k_dense_replace": -1}, "first_k_dense_replace -1 .*expected `int` >= 0"),
    (SPARSE, {"n_group": 3}, r"n_group 3 .*a divisor of n_routed_experts"),
    (SPARSE, {"topk_group": 9}, r"topk_group 9 .*at most \d \(n_group\)"),
    (SPARSE, {"n_shared_experts": 0}, "n_shared_experts 0 .*expected `int` >= 1"),
    (SPARSE, {"routed_scaling_factor": 0}, "routed_scaling_factor 0 .*expected `float` > 0"),
    (SPARSE, {"num_mtp_layers": 2}, "num_mtp_layers 2 .*expected 1, the value of num_nextn_predict_layers"),
    (SPARSE, {"num_nextn_predict_layers": True}, "num_nextn_predict_layers True .*expected `int`"),
    (SPARSE, {"moe_intermediate_size": ...}, "moe_intermediate_size None .*missing"),
    (SPARSE, {"num_experts_per_tok": 129}, r"num_experts_per_tok 129 .*at most 128 \(experts of topk_group groups\)"),
    (("GLM",), {"n_group": 128}, r"n_group 128 .*groups of at least two of n_routed_experts \(128\)"),
    (("GLM",), {"num_key_value_heads": 7}, r"num_key_value_heads 7 .*a divisor of num_attention_heads \(96\)"),
    (("GLM",), {"use_qk_norm": "yes"}, "use_qk_norm 'yes' .*expected `bool`"),
    (("GLM",), {"head_dim": 18}, r"partial_rotary_factor 0.5 .*an even part of head_dim \(18\)"),
    (("DEEPSEEK",), {"num_key_value_heads": 64}, "num_key_value_heads 64 .*expected 128"),
    (("DEEPSEEK",), {"q_lora_rank": ...}, "q_lora_rank None .*missing"),
    (("DEEPSEEK",), {"q_lora_rank": 0}, "q_lora_rank 0 .*expected `int` >= 1"),
    (("DEEPSEEK",), {"qk_rope_head_dim": 7}, "qk_rope_head_dim 7 .*multiple of 2"),
    (("DEEPSEEK",), {"kv_lora_rank": None}, "kv_lora_rank None .*missing"),
    (("DEEPSEEK",), {"rope_interleave": "yes"}, "rope_interleave 'yes' .*expected `bool`"),
    (("DFLASH",), {"architectures": ["MambaForCausalLM"]}, r"architectures .*MuseGlimmerAssistantModel"),
    (("DFLASH",), {"layer_types": None}, "layer_types None .*missing"),
    (("DFLASH",), {"block_size": 1}, "block_size 1 .*expected `int` >= 2"),
    (("DFLASH",), {"mask_token_id": -1}, "mask_token_id -1 .*expected `int` >= 0"),
    (("DFLASH",), {"mask_token_id": None}, "mask_token_id None .*missing"),
    (("DFLASH",), {"target_layer_ids": [0, 0]}, r"target_layer_ids \[0, 0\] .*expected distinct layers"),
    (("DFLASH",), {"target_layer_ids": []}, r"target_layer_ids \[\] .*length >= 1"),
    (("DFLASH",), {"target_layer_ids": None}, "target_layer_ids None .*missing"),
    (("DFLASH",), {"target_layer_ids": [-1, 0]}, r"target_layer_ids\[0\] -1 .*expected `int` >= 0"),
    (("DFLASH",), {"target_layer_ids": [True]}, r"target_layer_ids\[0\] True .*expected `int`"),
    (("DFLASH",), {"head_dim": 7}, "head_dim 7 .*multiple of 2"),
    (("DFLASH",), {"num_key_value_heads": 4}, "num_key_value_heads 4 .*a divisor of num_attention_heads"),
]


@pytest.mark.parametrize(("name", "fields", "message"), [(name, *case) for names, *case in REFUSED for name in names])
def test_a_bad_field_is_refused(name: str, fields: dict[str, Any], message: str) -> None:
    kind = DecoderConfig if name == "DFLASH" else ours.TargetConfig
    config = {field: value for field, value in {**EVERY[name], **fields}.items() if value is not ...}
    with pytest.raises(CheckpointError, match=message):
        parse_config(config, kind)


def test_a_head_is_one_layer_of_llama_or_qwen3_that_fits() -> None:
    made_up = parse(QWEN3, num_hidden_layers=1)
    check_head_fits(parse(QWEN3, num_hidden_layers=1, head_dim=6), made_up, "config.json")
    for fields in ({"num_hidden_layers": 2}, {"hidden_size": 64}, {"vocab_size": 78}):
        name = next(iter(fields))
        with pytest.raises(CheckpointError, match=f"invalid {name} {fields[name]} .*for an EAGLE head of this target"):
            check_head_fits(parse(QWEN3, **{"num_hidden_layers": 1, **fields}), made_up, "config.json")
    with pytest.raises(CheckpointError, match=r"invalid architectures .*Llama.*Qwen3"):
        check_head_fits(parse(LLAMA, num_hidden_layers=1), made_up, "config.json")
    with pytest.raises(CheckpointError, match=r"architectures .*expected one of LlamaForCausalLM, .*Qwen3ForC"):
        parse_config(NEXT, LlamaConfig)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": 32}, "hidden_size 32 .*expected 30, as in the target"),
        ({"mask_token_id": 53}, "mask_token_id 53 .*expected less than the target's vocab_size, 53"),
        ({"target_layer_ids": [2]}, r"target_layer_ids \[2\] .*expected layers 0 \.\. 1"),
    ],
)
def test_a_dflash_draft_that_does_not_fit(fields: dict[str, Any], message: str) -> None:
    parse(DFLASH).check_fits(30, 53, 3, "config.json")
    with pytest.raises(CheckpointError, match=message):
        parse(DFLASH, **fields).check_fits(30, 53, 3, "config.json")


@pytest.mark.parametrize(
    ("base", "fields", "message"),
    [
        (NEXT, {"mtp_num_hidden_layers": 2}, "mtp_num_hidden_layers 2 .*expected 1"),
        (NEXT, {"mtp_use_dedicated_embeddings": True}, "mtp_use_dedicated_embeddings True .*expected false"),
        (GLM, {"num_nextn_predict_layers": 0}, "num_nextn_predict_layers 0 .*expected at least 1 for the built-in"),
    ],
)
def test_a_draft_of_its_own_that_cannot_be(base: dict[str, Any], fields: dict[str, Any], message: str) -> None:
    parse(base).check_mtp("config.json")
    with pytest.raises(CheckpointError, match=message):
        parse(base, **fields).check_mtp("config.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "cannot be read as JSON"),
        (b"", "cannot be read as JSON"),
        (b"\xff\xfe\x00", "cannot be read as JSON"),
        (b"[1]", "expected a JSON object, got a list"),
        (b'"x"', "expected a JSON object, got a str"),
        (None, "does not exist: expected a checkpoint directory with config.json"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"config\.json.*{message}"):
        read_config(tmp_path)


def test_an_error_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "vocab_size": 0}))
    with pytest.raises(CheckpointError) as caught:
        read_config(tmp_path)
    assert str(caught.value) == f"invalid vocab_size 0 in {tmp_path / 'config.json'}: expected `int` >= 1"
