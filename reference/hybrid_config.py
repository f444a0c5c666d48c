"""The frozen configuration of a hybrid checkpoint: full attention and gated delta net layers in one model.

Fields that would change the arithmetic and are not implemented are errors, as for dense ones. The fields of M-RoPE
(`mrope_section`, `mrope_interleaved`) are allowed for Qwen3.5 and not read: they say which of a token's three positions
turns which plane, and a token of text has three equal ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftproof.properties.values.scenario import LayerType
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
    reject_unsupported,
    shown,
    stop_tokens,
)

QWEN3_NEXT = "Qwen3NextForCausalLM"
QWEN3_5 = "Qwen3_5ForCausalLM"
QWEN3_5_MOE = "Qwen3_5MoeForCausalLM"
ARCHITECTURES = (QWEN3_NEXT, QWEN3_5, QWEN3_5_MOE)

FULL: LayerType = "full_attention"
LINEAR: LayerType = "linear_attention"

_DEFAULT_INTERVAL = 4
_DEFAULT_ROTATED = 0.25
_MROPE = ("mrope_section", "mrope_interleaved")
_NEUTRAL = {
    "attention_bias": False,
    "attn_output_gate": True,
    "mlp_bias": False,
    "use_sliding_window": False,
    "hidden_act": "silu",
    "quantization_config": None,
}


@dataclass(frozen=True)
class Linear:
    """Sizes of the gated delta net layers: N key heads of H, U value heads of E, a convolution C wide."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values of all heads."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


@dataclass(frozen=True)
class Experts:
    """Sizes of a sparse layer: each token goes through `chosen` of `total` experts and through the shared one.

    `normalised`: the chosen experts' weights are divided by their sum.
    """

    total: int
    chosen: int
    intermediate: int
    shared_intermediate: int
    normalised: bool


@dataclass(frozen=True)
class HybridConfig:
    """Sizes and constants of a Qwen3-Next or Qwen3.5 model; `eos` are the stop tokens that `config.json` names.

    `types` has each layer's type and `sparse` whether it has experts; `intermediate` is the size of the other layers'
    MLP, None where there are none. The first `rotary_dim` components of a head take part in RoPE.
    """

    architecture: str
    types: tuple[LayerType, ...]
    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    hidden: int
    intermediate: int | None
    vocab: int
    eps: float
    rope: Rope
    linear: Linear
    experts: Experts | None
    sparse: tuple[bool, ...]
    tie_word_embeddings: bool
    max_position_embeddings: int
    eos: tuple[int, ...]

    @property
    def interleaved(self) -> bool:
        """Whether the projections of a linear layer are stored by key head in two matrices (Qwen3-Next)."""
        return self.architecture == QWEN3_NEXT


def parse_hybrid_config(text: str, source: str = "config.json") -> HybridConfig:
    """Parse the text of a `config.json`; `source` is named in errors. Raises CheckpointError."""
    fields = parse_object(text, source)
    architecture = parse_architecture(fields, ARCHITECTURES, source)
    reject_unsupported(fields, _NEUTRAL, source)
    types = _types(fields, source)
    heads, kv_heads = parse_multiple(fields, "num_attention_heads", "num_key_value_heads", source)
    rope, rotary_dim = _rope(fields, architecture, source)
    experts = _experts(fields, architecture, source)
    sparse = _sparse(fields, architecture, experts, len(types), source)
    return HybridConfig(
        architecture=architecture,
        types=types,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=count(fields, "head_dim", source),
        rotary_dim=rotary_dim,
        hidden=count(fields, "hidden_size", source),
        intermediate=None if all(sparse) else count(fields, "intermediate_size", source),
        vocab=count(fields, "vocab_size", source),
        eps=positive(fields, "rms_norm_eps", source),
        rope=rope,
        linear=_linear(fields, source),
        experts=experts,
        sparse=sparse,
        tie_word_embeddings=flag(fields, "tie_word_embeddings", source),
        max_position_embeddings=count(fields, "max_position_embeddings", source),
        eos=stop_tokens(fields, source),
    )


def _types(fields: Mapping[str, Any], source: str) -> tuple[LayerType, ...]:
    """`layer_types`, or where it is absent every `full_attention_interval`-th layer full attention."""
    layers = count(fields, "num_hidden_layers", source)
    types = fields.get("layer_types")
    if types is None:
        interval = count({"full_attention_interval": _DEFAULT_INTERVAL, **fields}, "full_attention_interval", source)
        return tuple(LINEAR if (i + 1) % interval else FULL for i in range(layers))
    if not isinstance(types, list) or len(types) != layers or not all(kind in (FULL, LINEAR) for kind in types):
        raise CheckpointError(f"{source}: layer_types is {types!r}; allowed: {layers} of {FULL!r} and {LINEAR!r}")
    return tuple(types)


def parse_multiple(fields: Mapping[str, Any], name: str, divisor: str, source: str) -> tuple[int, int]:
    """Two fields, the first a multiple of the second. Raises CheckpointError."""
    value, part = count(fields, name, source), count(fields, divisor, source)
    if value % part:
        raise CheckpointError(f"{source}: {divisor} is {part}; allowed: divisors of {value} ({name})")
    return value, part


def _linear(fields: Mapping[str, Any], source: str) -> Linear:
    value_heads, key_heads = parse_multiple(fields, "linear_num_value_heads", "linear_num_key_heads", source)
    return Linear(
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=count(fields, "linear_key_head_dim", source),
        value_dim=count(fields, "linear_value_head_dim", source),
        conv=count(fields, "linear_conv_kernel_dim", source),
    )


def _rope(fields: Mapping[str, Any], architecture: str, source: str) -> tuple[Rope, int]:
    """The plain rotary embedding, and how many components of a head it turns."""
    spare = _MROPE if architecture != QWEN3_NEXT else ()
    return parse_partial_rope(fields, count(fields, "head_dim", source), _DEFAULT_ROTATED, source, spare)


def parse_partial_rope(
    fields: Mapping[str, Any], head_dim: int, default: float, source: str, spare: tuple[str, ...] = ()
) -> tuple[Rope, int]:
    """The plain rotary embedding, and how many components of a head it turns: `default` is the part of `head_dim` where
    the fields name none, `spare` fields of `rope_parameters` that are not read. Raises CheckpointError."""
    name = _rope_field(fields)
    given = fields.get(name)
    own = dict(given) if isinstance(given, dict) else given
    factors = {"partial_rotary_factor": default, **fields}
    if isinstance(own, dict):
        if "partial_rotary_factor" in own:
            factors["partial_rotary_factor"] = own.pop("partial_rotary_factor")
        for field in spare:
            own.pop(field, None)
    rope = parse_rope({**fields, name: own}, source)
    refuse_scaling(rope, source, name)
    factor = positive(factors, "partial_rotary_factor", source)
    rotated = int(head_dim * factor)
    if factor > 1 or rotated < 2 or rotated % 2:
        raise CheckpointError(
            f"{source}: partial_rotary_factor is {factor}; allowed: at most 1, and an even number of components"
            f" (of head_dim, {head_dim}) turned"
        )
    return rope, rotated


def refuse_scaling(rope: Rope, source: str, name: str = "rope_parameters") -> None:
    """Raise CheckpointError unless it is the plain rotary embedding."""
    if rope.scaling is not None:
        raise CheckpointError(f"{source}: {name}.rope_type is 'llama3', which is unsupported; allowed: 'default'")


def _rope_field(fields: Mapping[str, Any]) -> str:
    return "rope_parameters" if fields.get("rope_parameters") is not None else "rope_scaling"


def _experts(fields: Mapping[str, Any], architecture: str, source: str) -> Experts | None:
    if architecture == QWEN3_5 or (architecture == QWEN3_NEXT and fields.get("num_experts") == 0):
        return None
    total, chosen = count(fields, "num_experts", source), count(fields, "num_experts_per_tok", source)
    if chosen > total:
        raise CheckpointError(f"{source}: num_experts_per_tok is {chosen}; allowed: 1 .. {total} (num_experts)")
    return Experts(
        total=total,
        chosen=chosen,
        intermediate=count(fields, "moe_intermediate_size", source),
        shared_intermediate=count(fields, "shared_expert_intermediate_size", source),
        # Qwen3.5 has no such field and always divides.
        normalised=architecture == QWEN3_5_MOE or flag(fields, "norm_topk_prob", source, default=True),
    )


def _sparse(
    fields: Mapping[str, Any], architecture: str, experts: Experts | None, layers: int, source: str
) -> tuple[bool, ...]:
    """Which layers have experts: Qwen3-Next's every `decoder_sparse_step`-th one that is not in `mlp_only_layers`."""
    if experts is None or architecture != QWEN3_NEXT:
        return (experts is not None,) * layers
    step = count({"decoder_sparse_step": 1, **fields}, "decoder_sparse_step", source)
    plain = fields.get("mlp_only_layers")
    plain = [] if plain is None else plain
    if not isinstance(plain, list) or not all(type(layer) is int for layer in plain):
        raise CheckpointError(
            f"{source}: mlp_only_layers is {shown(fields, 'mlp_only_layers')}; allowed: layer numbers"
        )
    return tuple(i not in plain and (i + 1) % step == 0 for i in range(layers))


def is_hybrid(text: str, source: str) -> bool:
    """Whether the text of a `config.json` names a hybrid architecture. Raises CheckpointError for broken JSON."""
    return names_one_of(text, ARCHITECTURES, source)
