"""Configuration of GLM-4-MoE and DeepSeek-V3: a few dense layers, then experts chosen by groups.

Field names are those of transformers, and so are the defaults of fields that may be left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.engine.models.checkpoint import DenseConfig, Rope, rope_fields
from draftproof.engine.models.config_fields import (
    LINEAR,
    CheckpointError,
    divisor,
    layer_types,
    number,
    only,
    positive,
)

_GLM, _DEEPSEEK = "Glm4MoeForCausalLM", "DeepseekV3ForCausalLM"
MODEL_TYPES = {"glm4_moe": _GLM, "deepseek_v3": _DEEPSEEK}
ARCHITECTURES = tuple(MODEL_TYPES.values())
_MTP_FIELDS = ("num_nextn_predict_layers", "num_mtp_layers")
_DEFAULTS: dict[str, dict[str, Any]] = {
    _GLM: {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 1.0, "eps": 1e-5},
    _DEEPSEEK: {"n_group": 8, "topk_group": 4, "first_k_dense_replace": 3, "routed_scaling_factor": 2.5, "eps": 1e-6},
}


@dataclass(frozen=True)
class GroupSizes:
    """A mixture of `count` experts in `groups`, of which the best `open_groups` are chosen from; `chosen` experts for a
    token, their shares times `scale`. `shared` is the inner width of what all tokens share."""

    count: int
    chosen: int
    groups: int
    open_groups: int
    intermediate: int
    shared: int
    normalised: bool
    scale: float


@dataclass(frozen=True)
class HeadsConfig:
    """GLM's attention: the first `rotary_dim` components of each head are rotated; `bias` on queries, keys, values."""

    kv_heads: int
    head_dim: int
    rotary_dim: int
    qk_norm: bool
    bias: bool


@dataclass(frozen=True)
class LatentConfig:
    """DeepSeek's attention: keys of `plain_dim` components out of the latent, then `rotary_dim` rotated ones.

    `query_rank` is 0 without a latent of queries; `interleaved`: rotated in pairs (2i, 2i + 1) as stored.
    """

    query_rank: int
    rank: int
    plain_dim: int
    rotary_dim: int
    value_dim: int
    interleaved: bool
    bias: bool


@dataclass(frozen=True)
class GroupedConfig:
    """Sizes of such a model: `dense` layers with one MLP of `intermediate`, then experts; `mtp` layers follow them."""

    vocab: int
    width: int
    layers: int
    dense: int
    mtp: int
    heads: int
    attention: HeadsConfig | LatentConfig
    intermediate: int
    norm_eps: float
    max_len: int
    tied: bool
    rope: Rope
    experts: GroupSizes


def is_grouped(fields: Mapping[str, Any]) -> bool:
    """Whether `parse_grouped` is the one to read them; a configuration object in memory may name its type only."""
    found = fields.get("architectures")
    if found is None:
        return fields.get("model_type") in MODEL_TYPES
    return isinstance(found, list) and len(found) == 1 and found[0] in ARCHITECTURES


def parse_grouped(fields: Mapping[str, Any]) -> GroupedConfig:
    """Check the fields of a view (config_fields). Raises CheckpointError."""
    if not is_grouped(fields):
        raise CheckpointError(f"architectures is {fields.get('architectures')!r}; allowed: {', '.join(ARCHITECTURES)}")
    architecture = fields["architectures"][0] if fields.get("architectures") else MODEL_TYPES[fields["model_type"]]
    _refuse_others(fields)
    kinds, defaults = layer_types(fields), _DEFAULTS[architecture]
    if LINEAR in kinds:
        raise CheckpointError(f"layer_types has {LINEAR!r}; allowed for {architecture}: 'full_attention'")
    heads, width = positive(fields, "num_attention_heads"), positive(fields, "hidden_size")
    attention = _heads(fields, heads, width) if architecture == _GLM else _latent(fields, heads)
    dense = positive(fields, "first_k_dense_replace", defaults["first_k_dense_replace"], least=0)
    _, rope = rope_fields(fields, ("default",))
    return GroupedConfig(
        vocab=positive(fields, "vocab_size"),
        width=width,
        layers=len(kinds),
        dense=dense,
        mtp=_mtp_layers(fields),
        heads=heads,
        attention=attention,
        intermediate=positive(fields, "intermediate_size"),
        norm_eps=number(fields, "rms_norm_eps", defaults["eps"]),
        max_len=positive(fields, "max_position_embeddings", 131072 if architecture == _GLM else 4096),
        tied=bool(fields.get("tie_word_embeddings", False)),
        rope=Rope(number(rope, "rope_theta", number(fields, "rope_theta", 10000.0))),
        experts=_experts(fields, defaults),
    )


def eagle_layer(config: GroupedConfig) -> DenseConfig:
    """An EAGLE head for such a target: one layer as Qwen3 has it, rotated whole, with an MLP as the dense layers'."""
    attention = config.attention
    latent = isinstance(attention, LatentConfig)
    head_dim = attention.value_dim if isinstance(attention, LatentConfig) else attention.head_dim
    if head_dim % 2:
        field = "v_head_dim" if latent else "head_dim"
        raise CheckpointError(f"{field} is {head_dim}; allowed for an EAGLE head: even numbers")
    return DenseConfig(
        vocab=config.vocab,
        width=config.width,
        layers=1,
        heads=config.heads,
        kv_heads=config.heads if isinstance(attention, LatentConfig) else attention.kv_heads,
        head_dim=head_dim,
        intermediate=config.intermediate,
        norm_eps=config.norm_eps,
        max_len=config.max_len,
        tied=config.tied,
        qk_norm=True,
        rope=config.rope,
    )


def _refuse_others(fields: Mapping[str, Any]) -> None:
    only(fields, "hidden_act", ("silu",))
    only(fields, "quantization_config", (None,))
    # How published configurations say what both architectures do anyhow.
    only(fields, "scoring_func", ("sigmoid",))
    only(fields, "topk_method", ("noaux_tc",))
    only(fields, "moe_layer_freq", (1,))
    only(fields, "mtp_hidden_states_first", (False,))
    only(fields, "norm_topk_prob", (True, False))
    for field in ("mlp_bias", "use_sliding_window"):
        only(fields, field, (False,))
    for field in ("attention_bias", "use_qk_norm", "tie_word_embeddings"):
        only(fields, field, (False, True))


def _mtp_layers(fields: Mapping[str, Any]) -> int:
    """Both names mean the same, the first in files and the second in transformers; one layer if neither is there."""
    counts = {positive(fields, name, least=0) for name in _MTP_FIELDS if fields.get(name) is not None}
    if len(counts) > 1:
        named = " and ".join(f"{name} is {fields[name]}" for name in _MTP_FIELDS)
        raise CheckpointError(f"{named}; allowed: the same number")
    return counts.pop() if counts else 1


def _heads(fields: Mapping[str, Any], heads: int, width: int) -> HeadsConfig:
    _, rope = rope_fields(fields, ("default",))
    head_dim = positive(fields, "head_dim", width // heads)
    share = number(rope, "partial_rotary_factor", number(fields, "partial_rotary_factor", 0.5))
    rotary_dim = int(head_dim * share)
    if not 2 <= rotary_dim <= head_dim or rotary_dim % 2:
        raise CheckpointError(
            f"partial_rotary_factor is {share}; allowed with head_dim {head_dim}: what gives an even number of at least"
            " two components and at most all"
        )
    return HeadsConfig(
        kv_heads=divisor(positive(fields, "num_key_value_heads"), "num_key_value_heads", heads, "num_attention_heads"),
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        qk_norm=fields.get("use_qk_norm") is True,
        bias=fields.get("attention_bias") is True,
    )


def _latent(fields: Mapping[str, Any], heads: int) -> LatentConfig:
    kv_heads = positive(fields, "num_key_value_heads", heads)
    if kv_heads != heads:
        raise CheckpointError(f"num_key_value_heads is {kv_heads}; allowed: num_attention_heads ({heads})")
    _, rope = rope_fields(fields, ("default",))
    for holder in (fields, rope):
        only(holder, "partial_rotary_factor", (1.0,))
    only(fields, "rope_interleave", (True, False))
    rotary_dim = positive(fields, "qk_rope_head_dim")
    if rotary_dim % 2:
        raise CheckpointError(f"qk_rope_head_dim is {rotary_dim}; allowed: even numbers")
    if "q_lora_rank" not in fields:
        raise CheckpointError("q_lora_rank is missing; allowed: a positive integer, or null for none")
    return LatentConfig(
        query_rank=0 if fields["q_lora_rank"] is None else positive(fields, "q_lora_rank"),
        rank=positive(fields, "kv_lora_rank"),
        plain_dim=positive(fields, "qk_nope_head_dim"),
        rotary_dim=rotary_dim,
        value_dim=positive(fields, "v_head_dim"),
        interleaved=fields.get("rope_interleave") is not False,
        bias=fields.get("attention_bias") is True,
    )


def _experts(fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> GroupSizes:
    count, chosen = positive(fields, "n_routed_experts"), positive(fields, "num_experts_per_tok")
    groups = positive(fields, "n_group", defaults["n_group"])
    divisor(groups, "n_group", count, "n_routed_experts")
    if count // groups < 2:
        raise CheckpointError(f"n_group is {groups}; allowed: groups of at least two of {count} experts")
    open_groups = positive(fields, "topk_group", defaults["topk_group"])
    if open_groups > groups:
        raise CheckpointError(f"topk_group is {open_groups}; allowed: at most n_group ({groups})")
    most = open_groups * (count // groups)
    if chosen > most:
        raise CheckpointError(f"num_experts_per_tok is {chosen}; allowed: at most the {most} experts of topk_group")
    inner = positive(fields, "moe_intermediate_size")
    return GroupSizes(
        count=count,
        chosen=chosen,
        groups=groups,
        open_groups=open_groups,
        intermediate=inner,
        shared=inner * positive(fields, "n_shared_experts", 1),
        normalised=fields.get("norm_topk_prob") is not False,
        scale=number(fields, "routed_scaling_factor", defaults["routed_scaling_factor"]),
    )
