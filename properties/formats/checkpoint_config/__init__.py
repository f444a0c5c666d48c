"""Read config.json, once for both sides.

A new architecture is a line of `CONFIGS`, and a class of its own if its fields are new.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

import msgspec

from draftproof.properties.formats.checkpoint_config.base import DecoderConfig, TargetConfig, invalid
from draftproof.properties.formats.checkpoint_config.dflash import DFlashConfig
from draftproof.properties.formats.checkpoint_config.eagle3 import SAFEAILAB, Eagle3Config
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig, MimoConfig, Qwen3Config
from draftproof.properties.formats.checkpoint_config.qwen3_next import Qwen3_5Config, Qwen3_5MoeConfig, Qwen3NextConfig
from draftproof.properties.formats.checkpoint_config.sparse import DeepseekV3Config, Glm4MoeConfig
from draftproof.properties.formats.checkpoint_config.step3p5 import Step3p5Config
from draftproof.properties.lib.base import explain
from draftproof.properties.lib.errors import CheckpointError

C = TypeVar("C", bound=DecoderConfig)

CONFIGS: dict[str, type[DecoderConfig]] = {
    "LlamaForCausalLM": LlamaConfig,
    "Qwen3ForCausalLM": Qwen3Config,
    "MiMoForCausalLM": MimoConfig,
    "Step3p5ForCausalLM": Step3p5Config,
    "Qwen3NextForCausalLM": Qwen3NextConfig,
    "Qwen3_5ForCausalLM": Qwen3_5Config,
    "Qwen3_5ForConditionalGeneration": Qwen3_5Config,
    "Qwen3_5MoeForCausalLM": Qwen3_5MoeConfig,
    "Qwen3_5MoeForConditionalGeneration": Qwen3_5MoeConfig,
    "Glm4MoeForCausalLM": Glm4MoeConfig,
    "DeepseekV3ForCausalLM": DeepseekV3Config,
    "MuseGlimmerAssistantModel": DFlashConfig,
    SAFEAILAB: Eagle3Config,
    "Eagle3Speculator": Eagle3Config,
    "Eagle3DraftModel": Eagle3Config,
}
# A configuration object in memory may name its model type only.
_MODEL_TYPES = {
    "mimo": "MiMoForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}
# What holds for a multimodal model as a whole rather than for its text part.
_OUTER = ("architectures", "tie_word_embeddings")
# transformers writes the second name for the first, which published files have.
_MTP_LAYERS = ("num_nextn_predict_layers", "num_mtp_layers")


@overload
def read_config(directory: str | Path) -> TargetConfig: ...
@overload
def read_config(directory: str | Path, kind: type[C]) -> C: ...
def read_config(directory: str | Path, kind: type[Any] = TargetConfig) -> Any:
    """Read and check the config.json of a checkpoint directory. Raises CheckpointError."""
    return parse_config(read_fields(directory), kind, str(Path(directory) / "config.json"))


def read_fields(directory: str | Path) -> dict[str, Any]:
    """Return the JSON object in the config.json of a checkpoint directory. Raises CheckpointError."""
    path = Path(directory) / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist: expected a checkpoint directory with config.json")
    return read_object(path)


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises CheckpointError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"invalid {path}: expected a JSON object, got a {type(value).__name__}")
    return value


def text_fields(fields: dict[str, Any], source: str = "config.json") -> dict[str, Any]:
    """Return the fields of the language model, `fields` itself unless that is a part of it. Raises CheckpointError."""
    text = fields.get("text_config")
    if text is None:
        return fields
    if not isinstance(text, dict):
        raise CheckpointError(f"invalid text_config {text!r} in {source}: expected an object")
    return {**text, **{name: fields[name] for name in _OUTER if name in fields}}


@overload
def parse_config(fields: dict[str, Any], *, source: str = ...) -> TargetConfig: ...
@overload
def parse_config(fields: dict[str, Any], kind: type[C], source: str = ...) -> C: ...
def parse_config(fields: dict[str, Any], kind: type[Any] = TargetConfig, source: str = "config.json") -> Any:
    """Check the fields of a configuration of some `kind`; null means left out. Raises CheckpointError."""
    fields = kind.flattened(text_fields(fields, source), source)
    architecture = _architecture(fields, kind, source)
    config = CONFIGS[architecture]
    fields = config.adapted(fields, source)
    for name, supported in config.unsupported.items():
        if fields.get(name, supported) not in (supported, None):
            raise invalid(source, name, fields[name], f"{supported!r}, the only supported value")
    known = {field.name: field.type for field in msgspec.structs.fields(config)}
    given = {name: fields[name] for name in known if fields.get(name) is not None}
    given["architectures"] = [architecture]
    given["rope_parameters"] = _rope(fields, config, known["rope_parameters"], source)
    if "num_nextn_predict_layers" in known:
        given |= _mtp_layers(fields, source)
    if "q_lora_rank" in known and "q_lora_rank" in fields:
        given["q_lora_rank"] = fields["q_lora_rank"]
    try:
        made = msgspec.convert(given, config)
    except msgspec.ValidationError as error:
        raise invalid(source, *explain(str(error), {**fields, **given})) from None
    made.check(source)
    return made


def _architecture(fields: Mapping[str, Any], kind: type[DecoderConfig], source: str) -> str:
    allowed = [name for name, config in CONFIGS.items() if issubclass(config, kind)]
    named = fields.get("architectures")
    found = [_MODEL_TYPES.get(str(fields.get("model_type")))] if named is None else named
    if not isinstance(found, list) or len(found) != 1 or found[0] not in allowed:
        raise invalid(source, "architectures", named, f"one of {', '.join(allowed)}")
    return str(found[0])


def _rope(fields: Mapping[str, Any], config: type[DecoderConfig], kind: Any, source: str) -> dict[str, Any]:
    """`rope_parameters` (transformers 5), or `rope_scaling` and fields beside it (before), in the form of the first."""
    name = "rope_parameters" if fields.get("rope_parameters") is not None else "rope_scaling"
    inner = {} if fields.get(name) is None else fields[name]
    if not isinstance(inner, dict):
        raise invalid(source, name, inner, "an object or null")
    inner = {field: value for field, value in inner.items() if value is not None}
    old = inner.pop("type", "default")
    inner.setdefault("rope_type", old)
    allowed = [one.__struct_config__.tag for one in getattr(kind, "__args__", (kind,))]
    if inner["rope_type"] not in allowed:
        raise invalid(source, f"rope_type of {name}", inner["rope_type"], " or ".join(allowed))
    outer = {field: fields[field] for field in ("rope_theta", "partial_rotary_factor") if fields.get(field) is not None}
    return {**config.rope_defaults, **outer, **inner}


def _mtp_layers(fields: Mapping[str, Any], source: str) -> dict[str, Any]:
    given = {name: fields[name] for name in _MTP_LAYERS if fields.get(name) is not None}
    first, second = (given.get(name) for name in _MTP_LAYERS)
    if len(given) == 2 and first != second:
        raise invalid(source, "num_mtp_layers", second, f"{first}, the value of num_nextn_predict_layers")
    return dict.fromkeys(_MTP_LAYERS[:1], first if second is None else second) if given else {}
