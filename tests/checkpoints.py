"""Tiny random checkpoints, written by transformers, for tests of everything that reads real architectures.

All sizes are pairwise distinct, since many bugs hide behind equal ones, and the weights are large enough for clear
margins between the best and the second token.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.numpy import load_file, save_file
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Glm4MoeConfig,
    Glm4MoeForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MuseGlimmerAssistantConfig,
    MuseGlimmerAssistantModel,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3_5ForCausalLM,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from draftproof.properties.values.eagle_weights import HeadSizes, random_head

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


def tiny_llama(directory: Path, seed: int = 0, **changes: Any) -> Path:
    """Write a random LlamaForCausalLM; `changes` are LlamaConfig fields. Returns `directory`."""
    return write(LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes})), directory, seed)


def tiny_qwen3(directory: Path, seed: int = 0, **changes: Any) -> Path:
    """Write a random Qwen3ForCausalLM; `changes` are Qwen3Config fields. Returns `directory`."""
    return write(Qwen3ForCausalLM(Qwen3Config(**{**SIZES, **changes})), directory, seed)


def tiny_qwen3_next(directory: Path, seed: int = 0, mtp: bool = True, **changes: Any) -> Path:
    """Write a random Qwen3NextForCausalLM, with an MTP layer if `mtp`; `changes` are Qwen3NextConfig fields."""
    return _hybrid(Qwen3NextForCausalLM, Qwen3NextConfig, {**QWEN3_NEXT, **changes}, directory, seed, mtp)


def tiny_qwen3_5(directory: Path, seed: int = 0, mtp: bool = True, **changes: Any) -> Path:
    """Write a random Qwen3_5ForCausalLM, with an MTP layer if `mtp`; `changes` are Qwen3_5TextConfig fields."""
    return _hybrid(Qwen3_5ForCausalLM, Qwen3_5TextConfig, {**QWEN3_5, **changes}, directory, seed, mtp)


def tiny_qwen3_5_moe(directory: Path, seed: int = 0, mtp: bool = True, **changes: Any) -> Path:
    """Write a random Qwen3_5MoeForCausalLM, with an MTP layer if `mtp`; `changes` are Qwen3_5MoeTextConfig fields."""
    return _hybrid(Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig, {**QWEN3_5_MOE, **changes}, directory, seed, mtp)


def tiny_glm4_moe(directory: Path, seed: int = 0, mtp: int = 1, **changes: Any) -> Path:
    """Write a random Glm4MoeForCausalLM with `mtp` MTP layers; `changes` are Glm4MoeConfig fields."""
    return _sparse(Glm4MoeForCausalLM, Glm4MoeConfig, {**GLM4_MOE, **changes}, directory, seed, mtp)


def tiny_deepseek_v3(directory: Path, seed: int = 0, mtp: int = 1, **changes: Any) -> Path:
    """Write a random DeepseekV3ForCausalLM with `mtp` MTP layers; `changes` are DeepseekV3Config fields."""
    return _sparse(DeepseekV3ForCausalLM, DeepseekV3Config, {**DEEPSEEK_V3, **changes}, directory, seed, mtp)


def tiny_dflash(directory: Path, seed: int = 0, **changes: Any) -> Path:
    """Write a random MuseGlimmerAssistantModel for a target of SIZES; `changes` are its config's fields."""
    return write(MuseGlimmerAssistantModel(MuseGlimmerAssistantConfig(**{**DFLASH, **changes})), directory, seed)


def _sparse(
    model: type[PreTrainedModel],
    config: type[PreTrainedConfig],
    fields: dict[str, Any],
    directory: Path,
    seed: int,
    mtp: int,
) -> Path:
    write(model(config(**fields, num_mtp_layers=mtp)), directory, seed)
    if not mtp:
        return directory
    layers = model(config(**{**fields, "num_hidden_layers": mtp, "first_k_dense_replace": 0}, num_mtp_layers=0))
    number = re.compile(r"model\.layers\.(\d+)\.")
    first = fields["num_hidden_layers"]
    tensors = {
        number.sub(lambda found: f"model.layers.{first + int(found[1])}.", name): array
        for name, array in _written(layers, directory, seed).items()
        if number.match(name)
    }
    size, source = fields["hidden_size"], torch.Generator().manual_seed(seed + 2000)
    for i in range(first, first + mtp):
        joint = torch.randn(size, 2 * size, generator=source) / (2 * size) ** 0.5
        tensors[f"model.layers.{i}.eh_proj.weight"] = joint.numpy()
        for norm in ("enorm", "hnorm", "shared_head.norm"):
            tensors[f"model.layers.{i}.{norm}.weight"] = (1 + 0.3 * torch.randn(size, generator=source)).numpy()
    return add_tensors(directory, tensors)


def add_tensors(directory: Path, tensors: dict[str, Any]) -> Path:
    """Add arrays by name to the one file of a checkpoint. Returns `directory`."""
    file = directory / "model.safetensors"
    save_file({**load_file(file), **tensors}, file, metadata={"format": "pt"})
    return directory


def _written(model: PreTrainedModel, directory: Path, seed: int) -> dict[str, Any]:
    """The tensors of a random `model` under the names that transformers writes."""
    folder = directory / "written"
    write(model, folder, seed + 1000)
    tensors = load_file(folder / "model.safetensors")
    shutil.rmtree(folder)
    return tensors


def _hybrid(
    model: type[PreTrainedModel],
    config: type[PreTrainedConfig],
    fields: dict[str, Any],
    directory: Path,
    seed: int,
    mtp: bool,
) -> Path:
    write(model(config(**fields)), directory, seed)
    if mtp:
        layer = {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
        if "mlp_only_layers" in fields:
            layer |= {"mlp_only_layers": [], "decoder_sparse_step": 1}
        _add_mtp(directory, model(config(**{**fields, **layer})), seed)
    return directory


def _add_mtp(directory: Path, model: PreTrainedModel, seed: int) -> None:
    """Add the one layer and the final norm of `model`, and what joins them to a target, as `mtp.*`.

    They are written and read back, so that their names are those that transformers writes.
    """
    layer = _written(model, directory, seed)
    kept = ("model.layers.", "model.norm.")
    mtp = {name.replace("model.", "mtp.", 1): array for name, array in layer.items() if name.startswith(kept)}
    size = model.config.hidden_size
    source = torch.Generator().manual_seed(seed + 2000)
    mtp["mtp.fc.weight"] = (torch.randn(size, 2 * size, generator=source) / (2 * size) ** 0.5).numpy()
    for name in ("mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight"):
        mtp[name] = (0.3 * torch.randn(size, generator=source)).numpy()
    add_tensors(directory, mtp)


def write(model: PreTrainedModel, directory: Path, seed: int, max_shard_size: str = "1GB") -> Path:
    """Randomize `model` and write it in float32; a small `max_shard_size` gives several files and an index."""
    randomize(model, seed)
    model.save_pretrained(directory, max_shard_size=max_shard_size)
    return directory


def randomize(model: PreTrainedModel, seed: int) -> None:
    """Give every weight a scale that keeps states near unit size and the logits several units apart.

    Matrices and convolutions: deviation 1.5 / sqrt(fan-in); embeddings 1; `lm_head` 5 / sqrt(hidden); norms 1 plus
    0.3 of noise, stored less 1 by those that add it; biases 0.3 of noise; the log of a decay rate -1 plus 0.7 of noise;
    time steps' biases 0.5 of noise; the routers' biases 0.2 of noise, which changes some choices and not all.
    """
    source = torch.Generator().manual_seed(seed)
    offset = model.config.model_type in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=source)
            weight.copy_(_vector(name, noise, offset) if weight.dim() == 1 else noise * _deviation(name, weight))
        for name, weight in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                weight.copy_(0.2 * torch.randn(weight.shape, generator=source))


def _vector(name: str, noise: torch.Tensor, offset: bool) -> torch.Tensor:
    if name.endswith("A_log"):
        return 0.7 * noise - 1.0
    if name.endswith("dt_bias"):
        return 0.5 * noise
    if name.endswith(".bias"):
        return 0.3 * noise
    centred = offset and not name.endswith("linear_attn.norm.weight")
    return 0.3 * noise + (0.0 if centred else 1.0)


def _deviation(name: str, weight: torch.Tensor) -> float:
    if "embed_tokens" in name:
        return 1.0
    gain = 5.0 if "lm_head" in name else 1.5
    return gain / weight.shape[-1] ** 0.5


def tiny_head(directory: Path, target: Path, seed: int = 0) -> Path:
    """Write the random EAGLE head of `random_head` for the checkpoint in `target`. Returns `directory`.

    A target that is neither Llama nor Qwen3 gets a Qwen3 layer with the full rotation of the target's base.
    """
    config = json.loads((target / "config.json").read_text())
    fields = _head_fields(config)
    sizes = HeadSizes(
        hidden=fields["hidden_size"],
        intermediate=fields["intermediate_size"],
        heads=fields["num_attention_heads"],
        kv_heads=fields["num_key_value_heads"],
        head_dim=fields["head_dim"],
        qk_norm=fields["architectures"] == ["Qwen3ForCausalLM"],
    )
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps({**fields, "num_hidden_layers": 1}))
    save_file(random_head(sizes, seed), directory / "model.safetensors")
    return directory


def _head_fields(config: dict[str, Any]) -> dict[str, Any]:
    """The config of an EAGLE head for a target with this one, but for the number of layers."""
    fields = {name: value for name, value in config.items() if name != "layer_types"}
    if config["architectures"][0] in ("LlamaForCausalLM", "Qwen3ForCausalLM"):
        return fields
    rope = {"rope_type": "default", "rope_theta": config["rope_parameters"]["rope_theta"]}
    fields = {name: config[name] for name in SIZES if name in config} | {"rope_parameters": rope}
    if config.get("num_experts"):
        fields["intermediate_size"] = config["moe_intermediate_size"]
    if "v_head_dim" in config:
        fields["head_dim"] = config["v_head_dim"]
    return fields | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}


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
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    save_file(_eagle3_tensors(fields, min(own["draft_vocab_size"], VOCAB), wide, seed), directory / "model.safetensors")
    return directory


def _eagle3_tensors(fields: dict[str, Any], vocab: int, wide: bool, seed: int) -> dict[str, Any]:
    d, inner, size = fields["hidden_size"], fields["intermediate_size"], fields["head_dim"]
    queries, keys = fields["num_attention_heads"] * size, fields["num_key_value_heads"] * size
    layer = "layers.0." if wide else "midlayer."
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (d, 2 * SIZES["hidden_size"]),
        "norm.weight": (d,),
        "lm_head.weight": (vocab, d),
        **{f"{layer}{name}.weight": (d,) for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")},
        f"{layer}self_attn.q_proj.weight": (queries, 2 * d),
        f"{layer}self_attn.k_proj.weight": (keys, 2 * d),
        f"{layer}self_attn.v_proj.weight": (keys, 2 * d),
        f"{layer}self_attn.o_proj.weight": (d, queries),
        f"{layer}mlp.gate_proj.weight": (inner, d),
        f"{layer}mlp.up_proj.weight": (inner, d),
        f"{layer}mlp.down_proj.weight": (d, inner),
    }
    if wide:
        shapes |= {f"{layer}self_attn.{name}_norm.weight": (size,) for name in "qk"}
    else:
        shapes["embed_tokens.weight"] = (VOCAB, d)
    source = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=source)
        tensors[name] = (1 + 0.3 * noise if len(shape) == 1 else _deviation(name, noise) * noise).numpy()
    ids = torch.randperm(VOCAB, generator=source)[:vocab].sort().values
    tensors["d2t"] = (ids - torch.arange(vocab)).numpy()
    tensors["t2d"] = torch.isin(torch.arange(VOCAB), ids).numpy()
    return tensors
