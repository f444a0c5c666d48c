"""Tiny random checkpoints for tests of everything that reads real architectures: sizes of their own, random weights.

All sizes are pairwise distinct, since many bugs hide behind equal ones, and the weights are large enough for clear
margins between the best and the second token.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from draftproof.faults import tiny_checkpoints as tiny
from draftproof.faults.tiny_checkpoints import add_tensors as add_tensors
from draftproof.harness.head_files import write_head

VOCAB = 53
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 30,
    "intermediate_size": 44,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": None,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": False,
}
# Wavelengths of the eight pairs run from 6 to 2e4 tokens: with these limits some are short, some long, some between.
LLAMA3_ROPE: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
# Linear, linear, full, linear, full; a mixture of experts in every layer but one.
QWEN3_NEXT: dict[str, Any] = {
    **SIZES,
    "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    "layer_types": ["linear_attention" if kind == "L" else "full_attention" for kind in "LLFLF"],
    "linear_num_key_heads": 3,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 10,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
    "num_experts": 9,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 14,
    "shared_expert_intermediate_size": 18,
    "mlp_only_layers": [1],
}
# Linear, linear, full, linear; M-RoPE, which positions of text cannot tell from RoPE.
QWEN3_5: dict[str, Any] = {
    **SIZES,
    "vocab_size": 59,
    "hidden_size": 34,
    "intermediate_size": 46,
    "num_hidden_layers": 4,
    "num_key_value_heads": 3,
    "head_dim": 24,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 100000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [2, 2, 2],
        "mrope_interleaved": True,
    },
    "layer_types": ["linear_attention" if kind == "L" else "full_attention" for kind in "LLFL"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 14,
    "linear_value_head_dim": 10,
    "linear_conv_kernel_dim": 3,
}
QWEN3_5_MOE: dict[str, Any] = {
    **{name: value for name, value in QWEN3_5.items() if name != "intermediate_size"},
    **{name: value for name, value in QWEN3_NEXT.items() if "expert" in name or "moe" in name},
}
# A plain layer, then two with experts.
GLM4_MOE: dict[str, Any] = {
    **SIZES,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    "moe_intermediate_size": 14,
    "n_routed_experts": 12,
    "num_experts_per_tok": 4,
    "n_group": 3,
    "topk_group": 2,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.25,
    "use_qk_norm": True,
}
DEEPSEEK_V3: dict[str, Any] = {
    **{name: value for name, value in GLM4_MOE.items() if name not in ("head_dim", "use_qk_norm")},
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "num_key_value_heads": 6,
    "q_lora_rank": 20,
    "kv_lora_rank": 18,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "rms_norm_eps": 1e-4,
}
DFLASH: dict[str, Any] = {
    **{name: value for name, value in SIZES.items() if name not in ("vocab_size", "tie_word_embeddings")},
    "intermediate_size": 38,
    "num_hidden_layers": 2,
    "num_key_value_heads": 3,
    "head_dim": 12,
    "layer_types": ["full_attention"] * 2,
    "block_size": 5,
    "mask_token_id": VOCAB - 1,
    "target_layer_ids": [1, 0],
}


class Wide:
    """Weights that keep states near unit size and the logits several units apart.

    Matrices and convolutions: deviation 1.5 / sqrt(fan-in); embeddings 1; `lm_head` 5 / sqrt(hidden); norms 1 plus
    0.3 of noise, stored less 1 by those that add it; biases 0.3 of noise; the log of a decay rate -1 plus 0.7 of noise;
    time steps' biases 0.5 of noise; the routers' biases 0.2 of noise, which changes some choices and not all.
    """

    def __init__(self, seed: int, width: int = SIZES["hidden_size"]) -> None:
        self._seed, self._width, self._joint = seed, width, torch.Generator().manual_seed(seed + 2000)

    def source(self, directory: Path) -> torch.Generator:
        return torch.Generator().manual_seed(self._seed + 1000 * (directory.name == "mtp"))

    def drawn(self, name: str, noise: Tensor, less: float) -> Tensor:
        if name.endswith("e_score_correction_bias"):
            return 0.2 * noise
        if noise.dim() > 1:
            gain = 5.0 if "lm_head" in name else 1.5
            return noise * (1.0 if "embed_tokens" in name else gain / noise.shape[-1] ** 0.5)
        if name.endswith("A_log"):
            return 0.7 * noise - 1.0
        if name.endswith("dt_bias"):
            return 0.5 * noise
        return 0.3 * noise + (0.0 if name.endswith(".bias") else 1.0 - less)

    def joint(self, names: list[str]) -> dict[str, Tensor]:
        size = self._width
        projection = torch.randn(size, 2 * size, generator=self._joint) / (2 * size) ** 0.5
        norms = [1 + 0.3 * torch.randn(size, generator=self._joint) for _ in names[1:]]
        return dict(zip(names, (projection, *norms), strict=True))


def tiny_llama(directory: Path, seed: int = 0, **changes: Any) -> Path:
    """Write a random LlamaForCausalLM; `changes` are LlamaConfig fields. Returns `directory`."""
    return write("LlamaForCausalLM", {**SIZES, **changes}, directory, seed)


def tiny_qwen3(directory: Path, seed: int = 0, **changes: Any) -> Path:
    """Write a random Qwen3ForCausalLM; `changes` are Qwen3Config fields. Returns `directory`."""
    return write("Qwen3ForCausalLM", {**SIZES, **changes}, directory, seed)


def tiny_qwen3_next(directory: Path, seed: int = 0, mtp: bool = True, **changes: Any) -> Path:
    """Write a random Qwen3NextForCausalLM, with an MTP layer if `mtp`; `changes` are Qwen3NextConfig fields."""
    return _hybrid("Qwen3NextForCausalLM", {**QWEN3_NEXT, **changes}, directory, seed, mtp)


def tiny_qwen3_5(directory: Path, seed: int = 0, mtp: bool = True, **changes: Any) -> Path:
    """Write a random Qwen3_5ForCausalLM, with an MTP layer if `mtp`; `changes` are Qwen3_5TextConfig fields."""
    return _hybrid("Qwen3_5ForCausalLM", {**QWEN3_5, **changes}, directory, seed, mtp)


def tiny_qwen3_5_moe(directory: Path, seed: int = 0, mtp: bool = True, **changes: Any) -> Path:
    """Write a random Qwen3_5MoeForCausalLM, with an MTP layer if `mtp`; `changes` are Qwen3_5MoeTextConfig fields."""
    return _hybrid("Qwen3_5MoeForCausalLM", {**QWEN3_5_MOE, **changes}, directory, seed, mtp)


def tiny_glm4_moe(directory: Path, seed: int = 0, mtp: int = 1, **changes: Any) -> Path:
    """Write a random Glm4MoeForCausalLM with `mtp` MTP layers; `changes` are Glm4MoeConfig fields."""
    return _sparse("Glm4MoeForCausalLM", {**GLM4_MOE, **changes}, directory, seed, mtp)


def tiny_deepseek_v3(directory: Path, seed: int = 0, mtp: int = 1, **changes: Any) -> Path:
    """Write a random DeepseekV3ForCausalLM with `mtp` MTP layers; `changes` are DeepseekV3Config fields."""
    return _sparse("DeepseekV3ForCausalLM", {**DEEPSEEK_V3, **changes}, directory, seed, mtp)


def tiny_dflash(directory: Path, seed: int = 0, **changes: Any) -> Path:
    """Write a random MuseGlimmerAssistantModel for a target of SIZES; `changes` are its config's fields."""
    return write("MuseGlimmerAssistantModel", {**DFLASH, **changes}, directory, seed)


def write(architecture: str, fields: dict[str, Any], directory: Path, seed: int, **saved: Any) -> Path:
    """Write a random checkpoint; a small `max_shard_size` gives several files and an index."""
    return tiny.write(tiny.model(architecture, fields), directory, Wide(seed), **saved)


def _sparse(architecture: str, fields: dict[str, Any], directory: Path, seed: int, mtp: int) -> Path:
    write(architecture, {**fields, "num_mtp_layers": mtp}, directory, seed)
    if mtp:
        layers = {"num_hidden_layers": mtp, "first_k_dense_replace": 0, "num_mtp_layers": 0}
        tiny.add_mtp_layers(directory, tiny.model(architecture, fields, **layers), Wide(seed, fields["hidden_size"]))
    return directory


def _hybrid(architecture: str, fields: dict[str, Any], directory: Path, seed: int, mtp: bool) -> Path:
    write(architecture, fields, directory, seed)
    if mtp:
        layer: dict[str, Any] = {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
        if "mlp_only_layers" in fields:
            layer |= {"mlp_only_layers": [], "decoder_sparse_step": 1}
        one = tiny.model(architecture, fields, **layer)
        tiny.add_mtp_of_qwen(directory, one, Wide(seed, fields["hidden_size"]))
    return directory


def tiny_head(directory: Path, target: Path, seed: int = 0) -> Path:
    """Write a random EAGLE head for the checkpoint in `target`. Returns `directory`."""
    write_head(target, directory, None, seed)
    return directory


EAGLE3_SIZES: dict[str, Any] = {
    "hidden_size": 28,
    "intermediate_size": 34,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "rms_norm_eps": 1e-3,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
    "vocab_size": VOCAB,
}


def tiny_eagle3(directory: Path, layout: str, seed: int = 0, **changes: Any) -> Path:
    """Write a random EAGLE-3 head for a target of SIZES, in the layout "safeailab" or "speculators".

    SafeAILab's has a width, an embedding and a vocabulary of its own, that of `speculators` a Qwen3 layer and the
    target's width and embedding. `changes` are fields of its config; what is None is left out. Returns `directory`.
    """
    wide = layout == "speculators"
    fields = {**EAGLE3_SIZES, **({"hidden_size": SIZES["hidden_size"]} if wide else {})}
    own = {"draft_vocab_size": 31, "target_hidden_size": SIZES["hidden_size"]}
    own |= {"norm_before_residual": wide, "eagle_aux_hidden_state_layer_ids": [2, 1] if wide else [1, 0]}
    own |= changes
    names = ("hidden_size", "vocab_size", "head_dim", "num_attention_heads", "num_key_value_heads")
    fields |= {name: own.pop(name) for name in names if name in own}
    if wide:
        config = {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", **own}
        config["transformer_layer_config"] = {**fields, "model_type": "qwen3"}
    else:
        layers = {"eagle_aux_hidden_state_layer_ids": own.pop("eagle_aux_hidden_state_layer_ids")}
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **fields, **own}
        config["eagle_config"] = {**layers, "use_aux_hidden_state": True}
    tiny.write_eagle3(config, directory, tiny.Alike(seed, SIZES["hidden_size"], VOCAB))
    weights, source, stored = (
        Wide(seed),
        torch.Generator().manual_seed(seed),
        load_file(directory / "model.safetensors"),
    )
    drawn = {name: weights.drawn(name, torch.randn(x.shape, generator=source), 0.0) for name, x in stored.items()}
    return add_tensors(directory, {name: x for name, x in drawn.items() if stored[name].is_floating_point()})
