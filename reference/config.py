"""The frozen configuration of a dense checkpoint, read from the text of its `config.json`.

Fields that would change the arithmetic and are not implemented (biases, sliding windows, quantization, other RoPE
types) are errors: an oracle that skips a field it does not know is wrong without saying so.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.errors import CheckpointError

LLAMA = "LlamaForCausalLM"
QWEN3 = "Qwen3ForCausalLM"
ARCHITECTURES = (LLAMA, QWEN3)

_DEFAULT_THETA = 10000.0
_LLAMA3_FIELDS = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
_ROPE_FIELDS = ("rope_type", "type", "rope_theta", "partial_rotary_factor", *_LLAMA3_FIELDS)
_NEUTRAL = {
    "attention_bias": False,
    "mlp_bias": False,
    "use_sliding_window": False,
    "hidden_act": "silu",
    "partial_rotary_factor": 1.0,
    "quantization_config": None,
}


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's frequency scaling; wavelengths are judged in units of `original_max_len` tokens."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_len: int


@dataclass(frozen=True)
class Rope:
    """Rotary embedding: base `theta`; `scaling` is None for the plain one (`rope_type` default)."""

    theta: float
    scaling: Llama3Scaling | None


@dataclass(frozen=True)
class Config:
    """Sizes and constants of a Llama or Qwen3 model; `eos` are the stop tokens that `config.json` names."""

    architecture: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    intermediate: int
    vocab: int
    eps: float
    rope: Rope
    tie_word_embeddings: bool
    max_position_embeddings: int
    eos: tuple[int, ...]

    @property
    def qk_norm(self) -> bool:
        """Whether queries and keys have an RMSNorm of their own per head (Qwen3)."""
        return self.architecture == QWEN3


def parse_config(text: str, source: str = "config.json") -> Config:
    """Parse the text of a `config.json`; `source` is named in errors. Raises CheckpointError."""
    fields = parse_object(text, source)
    architecture = parse_architecture(fields, ARCHITECTURES, source)
    reject_unsupported(fields, _NEUTRAL, source)
    reject_layer_types(fields, source)
    heads = count(fields, "num_attention_heads", source)
    hidden = count(fields, "hidden_size", source)
    kv_heads, head_dim = _head_sizes(fields, architecture, heads, hidden, source)
    return Config(
        architecture=architecture,
        layers=count(fields, "num_hidden_layers", source),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        hidden=hidden,
        intermediate=count(fields, "intermediate_size", source),
        vocab=count(fields, "vocab_size", source),
        eps=positive(fields, "rms_norm_eps", source),
        rope=parse_rope(fields, source),
        tie_word_embeddings=flag(fields, "tie_word_embeddings", source),
        max_position_embeddings=count(fields, "max_position_embeddings", source),
        eos=stop_tokens(fields, source),
    )


def parse_object(text: str, source: str) -> dict[str, Any]:
    """Parse a JSON object; anything else is a CheckpointError that names `source`."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{source}: broken JSON, {error}; a JSON object is needed") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{source}: top level is {type(value).__name__}; a JSON object is needed")
    return value


def parse_architecture(fields: Mapping[str, Any], allowed: Sequence[str], source: str) -> str:
    """The one architecture that a configuration names. Raises CheckpointError unless it is one of `allowed`."""
    named = fields.get("architectures")
    if not isinstance(named, list) or len(named) != 1 or named[0] not in allowed:
        shown_names = " or ".join(f'["{name}"]' for name in allowed)
        raise CheckpointError(f"{source}: architectures is {named!r}, which is unsupported; allowed: {shown_names}")
    return named[0]


def names_one_of(text: str, architectures: Sequence[str], source: str) -> bool:
    """Whether the text of a `config.json` names one of `architectures`. Raises CheckpointError for broken JSON."""
    named = parse_object(text, source).get("architectures")
    return isinstance(named, list) and len(named) == 1 and named[0] in architectures


def reject_unsupported(fields: Mapping[str, Any], neutral: Mapping[str, Any], source: str) -> None:
    """Raise CheckpointError for a field that is neither absent, null, nor its neutral value."""
    for name, allowed in neutral.items():
        if fields.get(name, allowed) not in (allowed, None):
            raise CheckpointError(f"{source}: {name} is {fields[name]!r}, which is unsupported; allowed: {allowed!r}")


def reject_layer_types(fields: Mapping[str, Any], source: str) -> None:
    """Raise CheckpointError for a layer type other than full attention."""
    # transformers treats the layer types as decisive and derives them from use_sliding_window when absent.
    odd = sorted({str(kind) for kind in fields.get("layer_types") or ()} - {"full_attention"})
    if odd:
        raise CheckpointError(f"{source}: layer_types has {odd!r}, which is unsupported; allowed: 'full_attention'")


def _head_sizes(fields: Mapping[str, Any], architecture: str, heads: int, hidden: int, source: str) -> tuple[int, int]:
    """Number of KV heads and head size. Llama configs may leave both out; Qwen3's are independent of the rest."""
    if architecture == LLAMA:
        defaults = {"num_key_value_heads": heads, "head_dim": hidden // heads}
        fields = {**fields, **{name: size for name, size in defaults.items() if fields.get(name) is None}}
    kv_heads = count(fields, "num_key_value_heads", source)
    head_dim = count(fields, "head_dim", source)
    if heads % kv_heads:
        raise CheckpointError(f"{source}: num_key_value_heads is {kv_heads}; allowed: divisors of {heads} (heads)")
    if head_dim % 2:
        raise CheckpointError(f"{source}: head_dim is {head_dim}; allowed: even numbers (RoPE turns pairs)")
    return kv_heads, head_dim


def parse_rope(fields: Mapping[str, Any], source: str) -> Rope:
    """Rope from `rope_parameters` (transformers 5) or from `rope_theta` and `rope_scaling` (before)."""
    name = "rope_parameters" if fields.get("rope_parameters") is not None else "rope_scaling"
    given = fields.get(name)
    given = {} if given is None else given
    if not isinstance(given, dict):
        raise CheckpointError(f"{source}: {name} is {given!r}; allowed: a JSON object or null")
    theta_holder = given if given.get("rope_theta") is not None else {"rope_theta": _DEFAULT_THETA, **fields}
    theta = positive(theta_holder, "rope_theta", source)
    if given.get("partial_rotary_factor", 1.0) != 1.0:
        value = given["partial_rotary_factor"]
        raise CheckpointError(f"{source}: {name}.partial_rotary_factor is {value!r}; allowed: 1.0")
    kind = given.get("rope_type", given.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise CheckpointError(
            f"{source}: {name}.rope_type is {kind!r}, which is unsupported; allowed: 'default' or 'llama3'"
        )
    for field in sorted(given.keys() - set(_ROPE_FIELDS)):
        allowed = ", ".join(_ROPE_FIELDS)
        raise CheckpointError(f"{source}: {name}.{field} is {given[field]!r}, which is unsupported; allowed: {allowed}")
    return Rope(theta, _llama3(given, name, source) if kind == "llama3" else None)


def _llama3(given: Mapping[str, Any], name: str, source: str) -> Llama3Scaling:
    where = f"{source}: {name}"
    scaling = Llama3Scaling(
        factor=positive(given, "factor", where),
        low_freq_factor=positive(given, "low_freq_factor", where),
        high_freq_factor=positive(given, "high_freq_factor", where),
        original_max_len=count(given, "original_max_position_embeddings", where),
    )
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        raise CheckpointError(
            f"{where}: high_freq_factor is {scaling.high_freq_factor}; allowed: above low_freq_factor,"
            f" {scaling.low_freq_factor}"
        )
    return scaling


def count(fields: Mapping[str, Any], name: str, source: str) -> int:
    """A field that is a number of things, at least one. Raises CheckpointError."""
    value = fields.get(name)
    if type(value) is not int or value < 1:
        raise CheckpointError(f"{source}: {name} is {shown(fields, name)}; allowed: an integer of at least 1")
    return value


def positive(fields: Mapping[str, Any], name: str, source: str) -> float:
    """A field that is a finite number above 0. Raises CheckpointError."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise CheckpointError(f"{source}: {name} is {shown(fields, name)}; allowed: a finite number above 0")
    return float(value)


def flag(fields: Mapping[str, Any], name: str, source: str, default: bool = False) -> bool:
    """A field that is true or false, `default` where it is absent. Raises CheckpointError."""
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise CheckpointError(f"{source}: {name} is {value!r}; allowed: true or false")
    return value


def stop_tokens(fields: Mapping[str, Any], source: str) -> tuple[int, ...]:
    """The token ids of `eos_token_id`: null, one, or several. Raises CheckpointError."""
    value = fields.get("eos_token_id")
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if any(type(token) is not int or token < 0 for token in ids):
        raise CheckpointError(f"{source}: eos_token_id is {value!r}; allowed: null, a token id, or a list of them")
    return tuple(ids)


def shown(fields: Mapping[str, Any], name: str) -> str:
    """A field's value for an error message."""
    return repr(fields[name]) if name in fields else "missing"
