"""Write EAGLE heads as directories: config.json of one layer, and the tensors by SafeAILab's names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from draftproof.properties.formats.checkpoint_config import read_config, read_object
from draftproof.properties.formats.checkpoint_config.base import invalid
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig
from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.weights.eagle import HeadSizes, random_head
from draftproof.reference.models.attention import head_size, kv_head_count
from draftproof.reference.models.eagle_head import HEAD_EMBEDDING, head_shapes
from draftproof.reference.models.registry import REFERENCE_MODELS

_OWN = ("layer_types", "quantization_config", "auto_map", "transformers_version")


def write_head(model: Path, out: Path, weights: Path | None, seed: int) -> int:
    """Write a head for the target in `model`; return how many tensors it has. Raises CheckpointError and OSError."""
    target = read_config(model)
    if target.architecture not in REFERENCE_MODELS:
        raise invalid(str(model), "architectures", [target.architecture], f"one of {', '.join(REFERENCE_MODELS)}")
    config = REFERENCE_MODELS[target.architecture].eagle_config(target)
    tensors = _random(config, seed) if weights is None else _given(config, weights)
    out.mkdir(parents=True, exist_ok=True)
    fields = _fields(read_object(model / "config.json"), config, same=target.architecture == config.architecture)
    (out / "config.json").write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    return len(tensors)


def _fields(target: dict[str, Any], config: LlamaConfig, *, same: bool) -> dict[str, Any]:
    """Return config.json: the target's with one layer, or the layer's own if it has another architecture."""
    if same:
        kept = {name: value for name, value in target.items() if name not in _OWN}
        return {**kept, "num_hidden_layers": 1}
    return {
        "architectures": list(config.architectures),
        "model_type": "qwen3",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": kv_head_count(config),
        "head_dim": head_size(config),
        "rms_norm_eps": config.rms_norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_parameters.rope_theta},
        "vocab_size": config.vocab_size,
        "max_position_embeddings": target.get("max_position_embeddings", 4096),
        "tie_word_embeddings": False,
    }


def _random(config: LlamaConfig, seed: int) -> dict[str, np.ndarray]:
    sizes = HeadSizes(
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=config.num_attention_heads,
        kv_heads=kv_head_count(config),
        head_dim=head_size(config),
        qk_norm=config.qk_norm,
    )
    return random_head(sizes, seed)


def _given(config: LlamaConfig, path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a file if they fit such a head. Raises CheckpointError."""
    try:
        found = load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: it cannot be read as safetensors: {error}") from None
    shapes = head_shapes(config)
    allowed = {**shapes, HEAD_EMBEDDING: (config.vocab_size, config.hidden_size)}
    if missing := sorted(shapes.keys() - found.keys()):
        raise CheckpointError(f"{path}: tensor {missing[0]} is missing ({len(missing)} missing in all)")
    for name, tensor in found.items():
        if name not in allowed:
            raise CheckpointError(
                f"{path}: tensor {name} is unknown: expected those of an EAGLE head, {', '.join(shapes)}"
            )
        if tensor.shape != allowed[name]:
            raise CheckpointError(f"{path}: tensor {name} has shape {tensor.shape}: expected {allowed[name]}")
    return {name: np.ascontiguousarray(tensor) for name, tensor in found.items()}
