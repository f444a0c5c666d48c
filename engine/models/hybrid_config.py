"""Configuration of Qwen3-Next and Qwen3.5 (text): gated delta net layers among layers of full attention.

Field names are those of transformers, and so are the defaults of fields left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.engine.models.checkpoint import DenseConfig, Rope, rope_fields
from draftproof.engine.models.config_fields import (
    CheckpointError,
    divisor,
    layer_types,
    number,
    only,
    positive,
)

# Qwen3-Next stores the projections of a gated delta net layer interleaved by key head, Qwen3.5 one after the other.
_INTERLEAVED = "Qwen3NextForCausalLM"
MODEL_TYPES = {
    "qwen3_next": _INTERLEAVED,
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
}
ARCHITECTURES = tuple(MODEL_TYPES.values())


@dataclass(frozen=True)
class LinearSizes:
    """A gated delta net layer: key head u // (value_heads / key_heads) serves value head u; `conv` is C."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int

    @property
    def keys(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Inputs of the convolution: all queries, all keys, all values."""
        return 2 * self.keys + self.values


@dataclass(frozen=True)
class ExpertSizes:
    """A mixture of `count` experts, `chosen` of them for a token, and one shared by all."""

    count: int
    chosen: int
    intermediate: int
    shared: int
    normalised: bool


@dataclass(frozen=True)
class HybridConfig:
    """Sizes of a hybrid model. `types` and `sparse` (experts instead of one MLP) have an entry for each layer."""

    vocab: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    intermediate: int
    norm_eps: float
    max_len: int
    tied: bool
    interleaved: bool
    rope: Rope
    types: tuple[str, ...]
    sparse: tuple[bool, ...]
    linear: LinearSizes
    experts: ExpertSizes | None


def is_hybrid(fields: Mapping[str, Any]) -> bool:
    """Whether `parse_hybrid` is the one to read them; a configuration object in memory may name its model type only."""
    found = fields.get("architectures")
    if found is None:
        return fields.get("model_type") in MODEL_TYPES
    return isinstance(found, list) and len(found) == 1 and found[0] in ARCHITECTURES


def parse_hybrid(fields: Mapping[str, Any]) -> HybridConfig:
    """Check the fields of a view (config_fields). Raises CheckpointError."""
    if not is_hybrid(fields):
        raise CheckpointError(f"architectures is {fields.get('architectures')!r}; allowed: {', '.join(ARCHITECTURES)}")
    only(fields, "hidden_act", ("silu",))
    only(fields, "attention_bias", (False,))
    only(fields, "quantization_config", (None,))
    heads = positive(fields, "num_attention_heads")
    head_dim = positive(fields, "head_dim", 256)
    rope, rotary_dim = _rotation(fields, head_dim)
    types, experts = layer_types(fields), _experts(fields)
    sparse = _sparse(fields, len(types)) if experts else (False,) * len(types)
    return HybridConfig(
        vocab=positive(fields, "vocab_size"),
        width=positive(fields, "hidden_size"),
        heads=heads,
        kv_heads=divisor(positive(fields, "num_key_value_heads"), "num_key_value_heads", heads, "num_attention_heads"),
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        intermediate=0 if all(sparse) else positive(fields, "intermediate_size"),
        norm_eps=number(fields, "rms_norm_eps", 1e-6),
        max_len=positive(fields, "max_position_embeddings", 32768),
        tied=bool(fields.get("tie_word_embeddings", False)),
        interleaved=_architecture(fields) == _INTERLEAVED,
        rope=rope,
        types=types,
        sparse=sparse,
        linear=_linear(fields),
        experts=experts,
    )


def eagle_config(config: HybridConfig) -> DenseConfig:
    """An EAGLE head for such a target: one layer as Qwen3 has it, rotated whole, as wide inside as one expert."""
    if config.head_dim % 2:
        raise CheckpointError(f"head_dim is {config.head_dim}; allowed for an EAGLE head: even numbers")
    return DenseConfig(
        vocab=config.vocab,
        width=config.width,
        layers=1,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        intermediate=config.experts.intermediate if config.experts else config.intermediate,
        norm_eps=config.norm_eps,
        max_len=config.max_len,
        tied=config.tied,
        qk_norm=True,
        rope=config.rope,
    )


def _architecture(fields: Mapping[str, Any]) -> str:
    found = fields.get("architectures")
    return found[0] if found else MODEL_TYPES[fields["model_type"]]


def _rotation(fields: Mapping[str, Any], head_dim: int) -> tuple[Rope, int]:
    """Of `head_dim` components the first `partial_rotary_factor` are rotated.

    For text the positions of Qwen3.5's three sections are equal, so that mrope_section says nothing.
    """
    _, rope = rope_fields(fields, ("default",))
    share = number(rope, "partial_rotary_factor", number(fields, "partial_rotary_factor", 0.25))
    rotary_dim = int(head_dim * share)
    if not 2 <= rotary_dim <= head_dim or rotary_dim % 2:
        raise CheckpointError(
            f"partial_rotary_factor is {share}; allowed with head_dim {head_dim}: what gives an even number of at least"
            " two components and at most all"
        )
    return Rope(number(rope, "rope_theta", number(fields, "rope_theta", 10000.0))), rotary_dim


def _linear(fields: Mapping[str, Any]) -> LinearSizes:
    key_heads, value_heads = (
        positive(fields, f"linear_num_{kind}_heads", default) for kind, default in (("key", 16), ("value", 32))
    )
    return LinearSizes(
        key_heads=divisor(key_heads, "linear_num_key_heads", value_heads, "linear_num_value_heads"),
        value_heads=value_heads,
        key_dim=positive(fields, "linear_key_head_dim", 128),
        value_dim=positive(fields, "linear_value_head_dim", 128),
        conv=positive(fields, "linear_conv_kernel_dim", 4, least=2),
    )


def _experts(fields: Mapping[str, Any]) -> ExpertSizes | None:
    count = positive(fields, "num_experts", 0, least=0)
    if not count:
        return None
    chosen = positive(fields, "num_experts_per_tok")
    if chosen > count:
        raise CheckpointError(f"num_experts_per_tok is {chosen}; allowed: at most num_experts ({count})")
    only(fields, "norm_topk_prob", (True, False))
    return ExpertSizes(
        count=count,
        chosen=chosen,
        intermediate=positive(fields, "moe_intermediate_size"),
        shared=positive(fields, "shared_expert_intermediate_size"),
        normalised=fields.get("norm_topk_prob") is not False,
    )


def _sparse(fields: Mapping[str, Any], layers: int) -> tuple[bool, ...]:
    step, plain = positive(fields, "decoder_sparse_step", 1), fields.get("mlp_only_layers") or []
    if not isinstance(plain, (list, tuple)) or not all(isinstance(i, int) for i in plain):
        raise CheckpointError(f"mlp_only_layers is {plain!r}; allowed: a list of layer numbers")
    return tuple(i not in plain and (i + 1) % step == 0 for i in range(layers))
