"""The frozen configuration of a GLM-4-MoE or DeepSeek-V3 checkpoint: experts in groups, and layers for MTP.

Fields that would change the arithmetic and are not implemented are errors, as for dense ones. Defaults are those of
transformers 5.23.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.reference.config import (
    CheckpointError,
    Rope,
    count,
    flag,
    names_one_of,
    parse_architecture,
    parse_object,
    parse_rope,
    positive,
    reject_layer_types,
    reject_unsupported,
    shown,
    stop_tokens,
)
from draftproof.reference.hybrid_config import parse_multiple, parse_partial_rope, refuse_scaling

GLM4_MOE = "Glm4MoeForCausalLM"
DEEPSEEK_V3 = "DeepseekV3ForCausalLM"
ARCHITECTURES = (GLM4_MOE, DEEPSEEK_V3)

_NEUTRAL = {
    "hidden_act": "silu",
    "mlp_bias": False,
    "moe_layer_freq": 1,
    "quantization_config": None,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "use_sliding_window": False,
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    GLM4_MOE: {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 1.0},
    DEEPSEEK_V3: {"n_group": 8, "topk_group": 4, "first_k_dense_replace": 3, "routed_scaling_factor": 2.5},
}
_DEFAULT_ROTATED = 0.5
_MTP_LAYERS = ("num_nextn_predict_layers", "num_mtp_layers")


@dataclass(frozen=True)
class Grouped:
    """Sizes of a layer with experts: `groups` of equally many of the `total`, of which the best `chosen_groups` count.

    A token goes through `chosen` experts and through the shared one. `normalised`: the weights of the chosen are
    divided by their sum; `scale` multiplies them in any case.
    """

    total: int
    chosen: int
    groups: int
    chosen_groups: int
    intermediate: int
    shared_intermediate: int
    normalised: bool
    scale: float


@dataclass(frozen=True)
class Latent:
    """Sizes of latent attention: ranks of queries (None: a plain projection) and of keys and values; a head has `nope`
    components without a position, `rope` with one, and values of `value`. `interleaved`: RoPE turns neighbours."""

    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    value: int
    interleaved: bool


@dataclass(frozen=True)
class SparseConfig:
    """Sizes and constants of a GLM-4-MoE or DeepSeek-V3 model; `eos` are the stop tokens that `config.json` names.

    The first `dense_layers` layers have an MLP, all others experts. With `latent` attention `head_dim` is the size of a
    value, and `rotary_dim` that of the part of a key which RoPE turns; else it turns the first `rotary_dim` components.
    """

    architecture: str
    layers: int
    dense_layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    hidden: int
    intermediate: int
    vocab: int
    eps: float
    rope: Rope
    bias: bool
    qk_norm: bool
    latent: Latent | None
    experts: Grouped
    mtp_layers: int
    tie_word_embeddings: bool
    max_position_embeddings: int
    eos: tuple[int, ...]


def is_sparse(text: str, source: str) -> bool:
    """Whether the text of a `config.json` names one of these architectures. Raises CheckpointError for broken JSON."""
    return names_one_of(text, ARCHITECTURES, source)


def parse_sparse_config(text: str, source: str = "config.json") -> SparseConfig:
    """Parse the text of a `config.json`; `source` is named in errors. Raises CheckpointError."""
    given = parse_object(text, source)
    architecture = parse_architecture(given, ARCHITECTURES, source)
    reject_unsupported(given, _NEUTRAL, source)
    reject_layer_types(given, source)
    fields = {**_DEFAULTS[architecture], **{name: value for name, value in given.items() if value is not None}}
    latent = _latent(given, source) if architecture == DEEPSEEK_V3 else None
    heads, kv_heads, head_dim = _heads(fields, latent, source)
    rope, rotary_dim = _rope(fields, latent, head_dim, source)
    layers = count(fields, "num_hidden_layers", source)
    return SparseConfig(
        architecture=architecture,
        layers=layers,
        dense_layers=min(_whole(fields, "first_k_dense_replace", source), layers),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        hidden=count(fields, "hidden_size", source),
        intermediate=count(fields, "intermediate_size", source),
        vocab=count(fields, "vocab_size", source),
        eps=positive(fields, "rms_norm_eps", source),
        rope=rope,
        bias=flag(fields, "attention_bias", source),
        qk_norm=latent is None and flag(fields, "use_qk_norm", source),
        latent=latent,
        experts=_grouped(fields, source),
        mtp_layers=_mtp_layers(fields, source),
        tie_word_embeddings=flag(fields, "tie_word_embeddings", source),
        max_position_embeddings=count(fields, "max_position_embeddings", source),
        eos=stop_tokens(fields, source),
    )


def _heads(fields: Mapping[str, Any], latent: Latent | None, source: str) -> tuple[int, int, int]:
    """Number of query heads and of key-value heads, and the size of one."""
    heads = count(fields, "num_attention_heads", source)
    if latent is None:
        heads, kv_heads = parse_multiple(fields, "num_attention_heads", "num_key_value_heads", source)
        sizes = {"head_dim": count(fields, "hidden_size", source) // heads, **fields}
        return heads, kv_heads, count(sizes, "head_dim", source)
    if fields.get("num_key_value_heads", heads) != heads:
        value = fields["num_key_value_heads"]
        raise CheckpointError(f"{source}: num_key_value_heads is {value!r}; allowed: {heads}, as many as queries")
    return heads, heads, latent.value


def _rope(fields: Mapping[str, Any], latent: Latent | None, head_dim: int, source: str) -> tuple[Rope, int]:
    if latent is None:
        return parse_partial_rope(fields, head_dim, _DEFAULT_ROTATED, source)
    # The class knows no partial rotation: the part of a head that has a position is turned whole.
    reject_unsupported(fields, {"partial_rotary_factor": 1.0}, source)
    rope = parse_rope(fields, source)
    refuse_scaling(rope, source)
    return rope, latent.rope


def _latent(fields: Mapping[str, Any], source: str) -> Latent:
    if "q_lora_rank" not in fields:
        raise CheckpointError(f"{source}: q_lora_rank is missing; allowed: an integer of at least 1, or null for none")
    rope = count(fields, "qk_rope_head_dim", source)
    if rope % 2:
        raise CheckpointError(f"{source}: qk_rope_head_dim is {rope}; allowed: even numbers (RoPE turns pairs)")
    interleaved = {"rope_interleave": True, **{name: value for name, value in fields.items() if value is not None}}
    return Latent(
        q_rank=None if fields["q_lora_rank"] is None else count(fields, "q_lora_rank", source),
        kv_rank=count(fields, "kv_lora_rank", source),
        nope=count(fields, "qk_nope_head_dim", source),
        rope=rope,
        value=count(fields, "v_head_dim", source),
        interleaved=flag(interleaved, "rope_interleave", source),
    )


def _grouped(fields: Mapping[str, Any], source: str) -> Grouped:
    total, groups = parse_multiple(fields, "n_routed_experts", "n_group", source)
    size, intermediate = total // groups, count(fields, "moe_intermediate_size", source)
    if size < 2:
        raise CheckpointError(
            f"{source}: n_group is {groups}; allowed: at least 2 of the {total} (n_routed_experts) in each, by which a"
            " group is judged"
        )
    chosen_groups = _at_most(fields, "topk_group", groups, "n_group", source)
    chosen = _at_most(fields, "num_experts_per_tok", chosen_groups * size, "experts of the chosen groups", source)
    return Grouped(
        total=total,
        chosen=chosen,
        groups=groups,
        chosen_groups=chosen_groups,
        intermediate=intermediate,
        shared_intermediate=intermediate * count({"n_shared_experts": 1, **fields}, "n_shared_experts", source),
        normalised=flag(fields, "norm_topk_prob", source, default=True),
        scale=positive(fields, "routed_scaling_factor", source),
    )


def _at_most(fields: Mapping[str, Any], name: str, most: int, what: str, source: str) -> int:
    value = count(fields, name, source)
    if value > most:
        raise CheckpointError(f"{source}: {name} is {value}; allowed: 1 .. {most} ({what})")
    return value


def _whole(fields: Mapping[str, Any], name: str, source: str) -> int:
    """A field that is a number of things, possibly none."""
    value = fields.get(name)
    if type(value) is not int or value < 0:
        raise CheckpointError(f"{source}: {name} is {shown(fields, name)}; allowed: an integer of at least 0")
    return value


def _mtp_layers(fields: Mapping[str, Any], source: str) -> int:
    """The field has two names, of which published checkpoints use the first; one layer if both are absent."""
    found = {name: _whole(fields, name, source) for name in _MTP_LAYERS if name in fields}
    if len(set(found.values())) > 1:
        old, new = _MTP_LAYERS
        raise CheckpointError(f"{source}: {new} is {found[new]}; allowed: {found[old]}, the value of {old}")
    return next(iter(found.values()), 1)
