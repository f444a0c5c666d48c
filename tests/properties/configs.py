"""Fields of published configurations, by architecture."""

from typing import Any

from draftproof.properties.formats.checkpoint_config import parse_config
from draftproof.properties.formats.checkpoint_config.base import (
    DecoderConfig,
)

# Fields of config.json files as transformers 4 wrote them: no layer_types, no head_dim for Llama, RoPE at the top.
LLAMA: dict[str, Any] = {
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
QWEN3: dict[str, Any] = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "head_dim": 8, "num_key_value_heads": 2}
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
QWEN3_5_DENSE: dict[str, Any] = {
    **{name: value for name, value in NEXT.items() if name != "num_experts"},
    "architectures": ["Qwen3_5ForCausalLM"],
}
QWEN3_5_SPARSE: dict[str, Any] = {**NEXT, "architectures": ["Qwen3_5MoeForCausalLM"]}
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
DFLASH: dict[str, Any] = {
    "architectures": ["MuseGlimmerAssistantModel"],
    "block_size": 5,
    "head_dim": 12,
    "hidden_act": "silu",
    "hidden_size": 30,
    "intermediate_size": 38,
    "layer_types": ["full_attention"] * 2,
    "mask_token_id": 52,
    "num_attention_heads": 6,
    "num_hidden_layers": 2,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-05,
    "target_layer_ids": [1, 0],
}


def parse(base: dict[str, Any], **fields: Any) -> Any:
    """Return what is read; a value of `...` leaves a field out."""
    config = {name: value for name, value in {**base, **fields}.items() if value is not ...}
    return parse_config(config, DecoderConfig)
