"""Configurations and tensors of the checkpoints that benchmarks run; none is ever on disk.

`D` hidden width, `F` inner width, `X` experts, `V` vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch

Shapes = dict[str, tuple[int, ...]]
BLOCK_LAYERS = 2
_NAMES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
_NAMES += ("num_attention_heads", "num_key_value_heads", "head_dim")
_EXPERT_NAMES = ("moe_intermediate_size", "n_routed_experts", "num_experts_per_tok")


def sizes_of(*sizes: int, experts: tuple[int, int, int] | None = None) -> dict[str, int]:
    """Return sizes by their names in config.json: vocabulary, width, inner width, layers, heads, KV heads, head size.

    `experts`: their inner width, how many there are, and how many a token has.
    """
    given = dict(zip(_NAMES, sizes, strict=True))
    return given | dict(zip(_EXPERT_NAMES, experts, strict=True)) if experts else given


def glm_config(sizes: dict[str, int], mtp: int) -> dict[str, Any]:
    """Return the fields of config.json, with `mtp` MTP layers."""
    return {
        **sizes,
        "architectures": ["Glm4MoeForCausalLM"],
        "first_k_dense_replace": 1,
        "n_shared_experts": 1,
        "num_nextn_predict_layers": mtp,
        "use_qk_norm": True,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 8192,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    }


def dflash_config(sizes: dict[str, int], block: int) -> dict[str, Any]:
    """Return the fields of the block draft's config.json: the target's sizes, its first layer's features."""
    same = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    return {
        **{name: sizes[name] for name in same},
        "architectures": ["MuseGlimmerAssistantModel"],
        "num_hidden_layers": BLOCK_LAYERS,
        "layer_types": ["full_attention"] * BLOCK_LAYERS,
        "mask_token_id": sizes["vocab_size"] - 1,
        "block_size": block,
        "target_layer_ids": [0],
        "rms_norm_eps": 1e-5,
    }


def glm_shapes(sizes: dict[str, int], mtp: int) -> Shapes:
    """Return the shapes of target and MTP layers by checkpoint name: experts in one tensor, the first layer dense."""
    width, first, table = sizes["hidden_size"], sizes["num_hidden_layers"], (sizes["vocab_size"], sizes["hidden_size"])
    shapes: Shapes = {"model.embed_tokens.weight": table, "lm_head.weight": table, "model.norm.weight": (width,)}
    for i in range(first + mtp):
        shapes |= _below(f"model.layers.{i}", _attention(sizes) | (_experts(sizes) if i else _mlp(sizes)))
    more = {"eh_proj": (width, 2 * width), "enorm": (width,), "hnorm": (width,), "shared_head.norm": (width,)}
    for i in range(first, first + mtp):
        shapes |= _below(f"model.layers.{i}", {f"{name}.weight": shape for name, shape in more.items()})
    return shapes


def dflash_shapes(sizes: dict[str, int]) -> Shapes:
    """Return the shapes of a block draft by checkpoint name."""
    width = sizes["hidden_size"]
    shapes: Shapes = {"encoder.fc.weight": (width, width)}
    shapes |= {"encoder.output_norm_enc.weight": (width,), "norm.weight": (width,)}
    for i in range(BLOCK_LAYERS):
        shapes |= _below(f"layers.{i}", _attention(sizes) | _mlp(sizes))
    return shapes


def _below(prefix: str, shapes: Shapes) -> Shapes:
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def _attention(sizes: dict[str, int]) -> Shapes:
    width, size = sizes["hidden_size"], sizes["head_dim"]
    queries, keys = sizes["num_attention_heads"] * size, sizes["num_key_value_heads"] * size
    rows = {"q": (queries, width), "k": (keys, width), "v": (keys, width), "o": (width, queries)}
    shapes: Shapes = {f"self_attn.{name}_proj.weight": shape for name, shape in rows.items()}
    shapes |= {f"self_attn.{name}_norm.weight": (size,) for name in "qk"}
    return shapes | {f"{name}_layernorm.weight": (width,) for name in ("input", "post_attention")}


def _mlp(sizes: dict[str, int], name: str = "mlp", inner: str = "intermediate_size") -> Shapes:
    width, rows = sizes["hidden_size"], sizes[inner]
    shapes = {"gate": (rows, width), "up": (rows, width), "down": (width, rows)}
    return {f"{name}.{part}_proj.weight": shape for part, shape in shapes.items()}


def _experts(sizes: dict[str, int]) -> Shapes:
    width, inner, count = (sizes[name] for name in ("hidden_size", "moe_intermediate_size", "n_routed_experts"))
    return {
        "mlp.gate.weight": (count, width),
        "mlp.gate.e_score_correction_bias": (count,),
        "mlp.experts.gate_up_proj": (count, 2 * inner, width),
        "mlp.experts.down_proj": (count, width, inner),
        **_mlp(sizes, "mlp.shared_experts", "moe_intermediate_size"),
    }


def llama_config(sizes: dict[str, int]) -> dict[str, Any]:
    """Return the fields of config.json, read by the engine and by transformers alike."""
    return {
        **sizes,
        "architectures": ["LlamaForCausalLM"],
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    }


def llama_shapes(sizes: dict[str, int]) -> Shapes:
    """Return the shapes of a Llama by checkpoint name; its lm_head is its embedding."""
    width = sizes["hidden_size"]
    shapes: Shapes = {"model.embed_tokens.weight": (sizes["vocab_size"], width), "model.norm.weight": (width,)}
    for i in range(sizes["num_hidden_layers"]):
        shapes |= _below(f"model.layers.{i}", _llama_layer(sizes))
    return shapes


def _llama_layer(sizes: dict[str, int]) -> Shapes:
    """Return the shapes of a layer: it has no norms of queries and keys."""
    shapes = _attention(sizes) | _mlp(sizes)
    return {name: shape for name, shape in shapes.items() if shape != (sizes["head_dim"],)}


def eagle_shapes(sizes: dict[str, int]) -> Shapes:
    """Return the shapes of an EAGLE head for a Llama by checkpoint name."""
    width = sizes["hidden_size"]
    layer = {name: shape for name, shape in _llama_layer(sizes).items() if name != "input_layernorm.weight"}
    return {"fc.weight": (width, 2 * width), **_below("layers.0", layer)}


def random_tensors(shapes: Shapes, device: str, dtype: torch.dtype, seed: int) -> dict[str, torch.Tensor]:
    """Return matrices of variance 1 / fan-in, norms of one, and small corrections of the experts' scores."""
    generator = torch.Generator(device).manual_seed(seed)
    made = {}
    for name, shape in shapes.items():
        if name.endswith(("norm.weight", "norm_enc.weight")):
            made[name] = torch.ones(shape, dtype=dtype, device=device)
        else:
            values = torch.randn(shape, dtype=dtype, device=device, generator=generator)
            made[name] = values.mul_(shape[-1] ** -0.5)
    return made
