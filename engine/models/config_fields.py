"""Views of a Hugging Face configuration object, read without changing what was handed in.

Target and draft are built from one configuration object. Each reads its own deep copy, so that neither can change what
the other sees, nor what the user keeps. What the fields of a checkpoint may be is checked by
`properties.formats.checkpoint_config`.
"""

from __future__ import annotations

import copy
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from draftproof.properties.formats.checkpoint_config import text_fields
from draftproof.properties.formats.checkpoint_config.base import FULL_ATTENTION, LINEAR_ATTENTION
from draftproof.properties.lib.errors import CheckpointError

SLIDING = "sliding_attention"


def read_fields(config: Any) -> dict[str, Any]:
    """Return a deep copy of a configuration: a mapping, or an object with to_dict(). Raises CheckpointError."""
    if isinstance(config, Mapping):
        return copy.deepcopy(dict(config))
    if callable(getattr(config, "to_dict", None)):
        return copy.deepcopy(config.to_dict())
    raise CheckpointError(f"invalid configuration {type(config).__name__}: expected a mapping or to_dict() on it")


def target_fields(config: Any) -> dict[str, Any]:
    """Return the target's view: of a multimodal model only the text part. Raises CheckpointError."""
    return text_fields(read_fields(config))


def draft_fields(config: Any) -> dict[str, Any]:
    """Return the draft's view: the target's sizes, its own layers of attention. Raises CheckpointError.

    These are one of full attention, unless a field "draft" with what only the draft reads has their number as "layers",
    and their "window".
    """
    fields = target_fields(config)
    own = fields.get("draft", {})
    window = own.get("window", 0)
    fields["num_hidden_layers"] = own.get("layers", 1)
    fields["layer_types"] = [SLIDING if window else FULL_ATTENTION] * fields["num_hidden_layers"]
    if window or "draft" in fields:
        # Its own, and not the target's.
        fields["sliding_window"] = window
    # Which layers of the target have no experts says nothing of the draft's only one.
    fields["mlp_only_layers"], fields["decoder_sparse_step"] = [], 1
    return fields


def layer_types(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the type of each layer of a view. Raises CheckpointError."""
    layers, listed = fields.get("num_hidden_layers"), fields.get("layer_types")
    if not isinstance(layers, int) or layers < 1:
        raise CheckpointError(f"invalid num_hidden_layers {layers!r}: expected a positive integer")
    if isinstance(listed, list) and len(listed) == layers + (fields.get("num_nextn_predict_layers") or 0):
        # Step-3.5 lists its MTP layers, too.
        listed = listed[:layers]
    interval = 4 if fields.get("full_attention_interval") is None else fields["full_attention_interval"]
    return list_layer_types(layers, listed, interval if "linear_num_value_heads" in fields else 1)


def list_layer_types(layers: int, listed: Sequence[str] | None, interval: int) -> tuple[str, ...]:
    """Return the types as listed, or make every `interval`th layer full attention. Raises CheckpointError."""
    if not isinstance(interval, int) or interval < 1:
        raise CheckpointError(f"invalid full_attention_interval {interval!r}: expected a positive integer")
    if listed is None:
        return tuple(LINEAR_ATTENTION if (i + 1) % interval else FULL_ATTENTION for i in range(layers))
    known = isinstance(listed, (list, tuple)) and all(
        kind in (FULL_ATTENTION, LINEAR_ATTENTION, SLIDING) for kind in listed
    )
    if not known or len(listed) != layers:
        kinds = f"{FULL_ATTENTION!r}, {LINEAR_ATTENTION!r} or {SLIDING!r}"
        raise CheckpointError(f"invalid layer_types {listed!r}: expected {layers} times {kinds}")
    return tuple(listed)


def windows(fields: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the window of each layer of a view that attends, 0 where it sees everything."""
    size = fields.get("sliding_window") or 0
    return tuple(size if kind == SLIDING else 0 for kind in layer_types(fields) if kind != LINEAR_ATTENTION)


def fingerprint(config: Any) -> tuple[int, ...]:
    """Return what a reader of `config` sees now: (crc32 of its canonical JSON, layers, LayerKind of each).

    Source: sgl-project/sglang#23331, where the draft changed the configuration of its target.
    """
    text = json.dumps(read_fields(config), sort_keys=True, separators=(",", ":"), default=str)
    kinds = layer_types(target_fields(config))
    return (
        zlib.crc32(text.encode()),
        len(kinds),
        *((FULL_ATTENTION, LINEAR_ATTENTION, SLIDING).index(kind) for kind in kinds),
    )
