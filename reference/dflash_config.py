"""The frozen configuration of a DFlash draft, and its tensors.

The one architecture is that of transformers 5.23, `MuseGlimmerAssistantModel`, with full attention in every layer.
Letters: `D` hidden size, `F` intermediate size, `N` query heads, `M` key-value heads, `H` head size.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from draftproof.reference.checkpoint import read_config_text, read_tensors
from draftproof.reference.config import (
    CheckpointError,
    Rope,
    count,
    parse_architecture,
    parse_object,
    parse_rope,
    positive,
    reject_unsupported,
    shown,
)
from draftproof.reference.hybrid_config import FULL, parse_multiple, refuse_scaling

DFLASH = "MuseGlimmerAssistantModel"

_DEFAULT_THETA = 500000.0
_NEUTRAL = {"hidden_act": "silu", "partial_rotary_factor": 1.0, "quantization_config": None}


@dataclass(frozen=True)
class DFlashConfig:
    """Sizes and constants of a DFlash draft.

    `block` rows are what it was made for: a token and `block` - 1 masked ones, of id `mask`. `features` are the layers
    of the target whose outputs are its context, in that order.
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    intermediate: int
    eps: float
    rope: Rope
    block: int
    mask: int
    features: tuple[int, ...]


def load_dflash(directory: str | Path) -> tuple[DFlashConfig, dict[str, Tensor]]:
    """Read a draft's directory: its config and its float64 tensors by name. Raises CheckpointError."""
    config = parse_dflash_config(*read_config_text(directory))
    return config, read_tensors(directory, dflash_shapes(config))


def parse_dflash_config(text: str, source: str = "config.json") -> DFlashConfig:
    """Parse the text of a `config.json`; `source` is named in errors. Raises CheckpointError."""
    fields = parse_object(text, source)
    parse_architecture(fields, (DFLASH,), source)
    reject_unsupported(fields, _NEUTRAL, source)
    layers = count(fields, "num_hidden_layers", source)
    _check_types(fields, layers, source)
    heads, kv_heads = parse_multiple(fields, "num_attention_heads", "num_key_value_heads", source)
    head_dim, block = count(fields, "head_dim", source), count(fields, "block_size", source)
    if head_dim % 2:
        raise CheckpointError(f"{source}: head_dim is {head_dim}; allowed: even numbers (RoPE turns pairs)")
    if block < 2:
        raise CheckpointError(f"{source}: block_size is {block}; allowed: at least 2, a token and a masked one")
    rope = parse_rope({"rope_theta": _DEFAULT_THETA, **fields}, source)
    refuse_scaling(rope, source)
    return DFlashConfig(
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        hidden=count(fields, "hidden_size", source),
        intermediate=count(fields, "intermediate_size", source),
        eps=positive(fields, "rms_norm_eps", source),
        rope=rope,
        block=block,
        mask=_mask(fields, source),
        features=_features(fields, source),
    )


def check_fits(config: DFlashConfig, hidden: int, vocab: int, layers: int, source: str) -> None:
    """Raise CheckpointError unless the draft fits a target of these sizes; `source` is named.

    The target's last layer is no feature: transformers takes the state after the final norm for its output, and that of
    any other layer before any norm.
    """
    if config.hidden != hidden:
        raise CheckpointError(f"{source}: hidden_size is {config.hidden}; allowed: {hidden}, that of the target")
    if config.mask >= vocab:
        raise CheckpointError(f"{source}: mask_token_id is {config.mask}; allowed: 0 .. {vocab - 1}, the target's ids")
    if max(config.features) > layers - 2:
        raise CheckpointError(
            f"{source}: target_layer_ids is {list(config.features)}; allowed: distinct layers of 0 .. {layers - 2} (of"
            " the last one it is not said whether before or after the final norm)"
        )


def dflash_shapes(config: DFlashConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor; the embedding and the head are the target's."""
    d, f, h = config.hidden, config.intermediate, config.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (d,),
        "post_attention_layernorm.weight": (d,),
        "self_attn.q_proj.weight": (config.heads * h, d),
        "self_attn.k_proj.weight": (config.kv_heads * h, d),
        "self_attn.v_proj.weight": (config.kv_heads * h, d),
        "self_attn.o_proj.weight": (d, config.heads * h),
        "self_attn.q_norm.weight": (h,),
        "self_attn.k_norm.weight": (h,),
        "mlp.gate_proj.weight": (f, d),
        "mlp.up_proj.weight": (f, d),
        "mlp.down_proj.weight": (d, f),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.fc.weight": (d, d * len(config.features)),
        "encoder.output_norm_enc.weight": (d,),
        "norm.weight": (d,),
    }
    return shapes | {f"layers.{i}.{name}": shape for i in range(config.layers) for name, shape in layer.items()}


def _check_types(fields: Mapping[str, Any], layers: int, source: str) -> None:
    # Absent, transformers takes every layer for one of sliding attention.
    if fields.get("layer_types") != [FULL] * layers:
        shown_types = shown(fields, "layer_types")
        raise CheckpointError(f"{source}: layer_types is {shown_types}; allowed: {layers} of {FULL!r}")


def _mask(fields: Mapping[str, Any], source: str) -> int:
    value = fields.get("mask_token_id")
    if type(value) is not int or value < 0:
        raise CheckpointError(f"{source}: mask_token_id is {shown(fields, 'mask_token_id')}; allowed: a token id")
    return value


def _features(fields: Mapping[str, Any], source: str) -> tuple[int, ...]:
    value = fields.get("target_layer_ids")
    numbers = value if isinstance(value, list) else []
    if not numbers or len(set(numbers)) < len(numbers) or any(type(i) is not int or i < 0 for i in numbers):
        raise CheckpointError(
            f"{source}: target_layer_ids is {shown(fields, 'target_layer_ids')}; allowed: distinct layer numbers"
        )
    return tuple(numbers)
