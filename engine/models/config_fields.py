"""Fields of a Hugging Face configuration: read without changing what was handed in, checked one by one.

Target and draft are built from one configuration object. Each reads its own deep copy, so that neither can change what
the other sees, nor what the user keeps.
"""

from __future__ import annotations

import copy
import json
import zlib
from collections.abc import Mapping
from typing import Any

from draftproof.errors import CheckpointError

FULL, LINEAR = "full_attention", "linear_attention"
# What holds for a multimodal model as a whole rather than for its text part.
_OUTER = ("architectures", "tie_word_embeddings")


def read_fields(config: Any) -> dict[str, Any]:
    """A deep copy of a configuration: a mapping, or an object with to_dict(). Raises CheckpointError."""
    if isinstance(config, Mapping):
        return copy.deepcopy(dict(config))
    if callable(getattr(config, "to_dict", None)):
        return copy.deepcopy(config.to_dict())
    raise CheckpointError(f"the configuration is a {type(config).__name__}; allowed: a mapping or to_dict() on it")


def target_fields(config: Any) -> dict[str, Any]:
    """The target's view: of a multimodal model only the text part. Raises CheckpointError."""
    fields = read_fields(config)
    text = fields.get("text_config")
    if text is None:
        return fields
    if not isinstance(text, dict):
        raise CheckpointError(f"text_config is {text!r}; allowed: an object")
    return {**text, **{name: fields[name] for name in _OUTER if name in fields}}


def draft_fields(config: Any) -> dict[str, Any]:
    """The draft's view: the target's sizes, one layer of full attention. Raises CheckpointError."""
    fields = target_fields(config)
    fields["num_hidden_layers"] = 1
    fields["layer_types"] = [FULL]
    # Which layers of the target have no experts says nothing of the draft's only one.
    fields["mlp_only_layers"], fields["decoder_sparse_step"] = [], 1
    return fields


def layer_types(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """The kind of each layer: listed, or every `full_attention_interval`th (4) is full attention if there are linear
    layers at all. Raises CheckpointError."""
    layers, listed = positive(fields, "num_hidden_layers"), fields.get("layer_types")
    if listed is None:
        if "linear_num_value_heads" not in fields:
            return (FULL,) * layers
        interval = positive(fields, "full_attention_interval", 4)
        return tuple(LINEAR if (i + 1) % interval else FULL for i in range(layers))
    if not isinstance(listed, (list, tuple)) or len(listed) != layers:
        raise CheckpointError(f"layer_types is {listed!r}; allowed: a list of num_hidden_layers ({layers}) names")
    odd = sorted({str(kind) for kind in listed} - {FULL, LINEAR})
    if odd:
        raise CheckpointError(f"layer_types has {odd[0]!r}; allowed: {FULL!r}, {LINEAR!r}")
    return tuple(listed)


def fingerprint(config: Any) -> tuple[int, ...]:
    """What anybody who reads `config` now would see: (crc32 of its canonical JSON, layers, 0 full or 1 linear each)."""
    text = json.dumps(read_fields(config), sort_keys=True, separators=(",", ":"), default=str)
    kinds = layer_types(target_fields(config))
    return (zlib.crc32(text.encode()), len(kinds), *(int(kind == LINEAR) for kind in kinds))


def positive(raw: Mapping[str, Any], field: str, default: int | None = None, least: int = 1) -> int:
    """A whole number of at least `least`. Raises CheckpointError."""
    value = raw.get(field)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        allowed = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise CheckpointError(f"{field} is {value!r}; allowed: {allowed}")
    return value


def number(raw: Mapping[str, Any], field: str, default: float | None = None) -> float:
    """A positive finite number. Raises CheckpointError."""
    value = raw.get(field, default)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise CheckpointError(f"{field} is {value!r}; allowed: a positive number")
    return float(value)


def only(raw: Mapping[str, Any], field: str, allowed: tuple[object, ...]) -> None:
    """Refuse any other value; a field left out or null is taken for the first. Raises CheckpointError."""
    value = raw.get(field, allowed[0])
    if value is not None and value not in allowed:
        raise CheckpointError(f"{field} is {value!r}; allowed: {', '.join(map(repr, allowed))}")


def divisor(value: int, field: str, of: int, of_field: str) -> int:
    """`value` if it divides `of`. Raises CheckpointError."""
    if of % value:
        raise CheckpointError(f"{field} is {value}; allowed: a divisor of {of_field} ({of})")
    return value
