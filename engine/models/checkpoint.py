"""Hugging Face checkpoints: safetensors, read lazily, and config.json of dense models.

`D` hidden width, `V` vocabulary, `N` heads, `H` head size. Names of fields and tensors are those of transformers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from draftproof.engine.models.config_fields import CheckpointError, divisor, number, only, positive

ARCHITECTURES = ("LlamaForCausalLM", "Qwen3ForCausalLM")
ROPE_TYPES = ("default", "llama3")
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


@dataclass(frozen=True)
class Rope:
    """Rotary embedding. `scaling` is (factor, low_freq_factor, high_freq_factor, original length) for llama3."""

    theta: float
    scaling: tuple[float, float, float, float] | None = None


@dataclass(frozen=True)
class DenseConfig:
    """Sizes of a Llama or Qwen3; `qk_norm` is Qwen3's norm of each query and key head."""

    vocab: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    norm_eps: float
    max_len: int
    tied: bool
    qk_norm: bool
    rope: Rope


class Tensors(Mapping[str, torch.Tensor]):
    """Tensors by name from safetensors files, each read onto `device` and cast to `dtype` when asked for."""

    def __init__(self, files: Mapping[str, Path], device: str, dtype: torch.dtype) -> None:
        self._files, self._device, self._dtype = files, device, dtype
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.stored(name).to(self._dtype)

    def stored(self, name: str) -> torch.Tensor:
        """The tensor in the dtype of its file."""
        self._read.add(name)
        tensor = _open(self._files[name], self._device).get_tensor(name)
        if not tensor.is_floating_point():
            raise CheckpointError(f"tensor {name} in {self._files[name]} is {tensor.dtype}; allowed: floating point")
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def refuse_unread(self, *ignored: str) -> None:
        """Raise CheckpointError if a tensor was never read: a bias or a further layer makes it another model.

        `ignored` are names, or with a dot at the end prefixes.
        """
        prefixes = tuple(name for name in ignored if name.endswith("."))
        self._refuse(name for name in self if name not in ignored and not name.startswith(prefixes))

    def refuse_unread_of(self, *parts: str) -> None:
        """As refuse_unread, but only of tensors whose names begin with one of `parts`."""
        self._refuse(name for name in self if name.startswith(parts))

    def _refuse(self, names: Iterable[str]) -> None:
        # Early Llama checkpoints store the rotary frequencies, which follow from config.json.
        unread = sorted(name for name in names if name not in self._read and not name.endswith("rotary_emb.inv_freq"))
        if unread:
            raise CheckpointError(f"tensor {unread[0]} in {self._files[unread[0]]} is unknown to the architecture")


def read_json(directory: str | Path) -> dict[str, Any]:
    """The object in config.json. Raises CheckpointError."""
    return _read_json(_existing(Path(directory)) / "config.json")


def read_config(directory: str | Path) -> DenseConfig:
    """Read config.json. Raises CheckpointError."""
    return parse_config(read_json(directory))


def open_tensors(directory: str | Path, device: str | torch.device, dtype: torch.dtype) -> Tensors:
    """List the tensors of model.safetensors, or of the shards that its index names. Raises CheckpointError."""
    path = _existing(Path(directory))
    if (path / _SINGLE).is_file():
        files = _names(path / _SINGLE)
    elif (path / _INDEX).is_file():
        files = _sharded(path)
    else:
        pickles = sorted(file.name for file in path.glob("*.bin")) + sorted(file.name for file in path.glob("*.pt"))
        found = f"; found the pickle {pickles[0]}, which is never loaded" if pickles else ""
        raise CheckpointError(f"{path} has no weights: expected {_SINGLE} or {_INDEX}{found}")
    return Tensors(files, str(device), dtype)


def take(tensors: Mapping[str, torch.Tensor], name: str, *shape: int) -> torch.Tensor:
    """Return the tensor `name`. Raises CheckpointError if it is missing or not of `shape`."""
    if name not in tensors:
        raise CheckpointError(f"tensor {name} is missing from the checkpoint (expected shape {list(shape)})")
    tensor = tensors[name]
    if tuple(tensor.shape) != shape:
        raise CheckpointError(f"tensor {name} has shape {list(tensor.shape)}; expected {list(shape)}")
    return tensor


def take_wide(tensors: Mapping[str, torch.Tensor], name: str, *shape: int) -> torch.Tensor:
    """As `take`, in float32 at least, without a rounding to the model's dtype on the way."""
    taken = take(tensors, name, *shape)
    stored = tensors.stored(name) if isinstance(tensors, Tensors) else taken
    return stored.to(torch.promote_types(taken.dtype, torch.float32))


def parse_config(raw: Mapping[str, Any]) -> DenseConfig:
    """Check the fields of a config.json. Raises CheckpointError."""
    architecture = _architecture(raw)
    only(raw, "hidden_act", ("silu",))
    for field in ("attention_bias", "mlp_bias", "use_sliding_window"):
        only(raw, field, (False,))
    only(raw, "quantization_config", (None,))
    odd = sorted({str(kind) for kind in raw.get("layer_types") or ()} - {"full_attention"})
    if odd:
        raise CheckpointError(f"layer_types has {odd[0]!r}; allowed: 'full_attention'")
    width, heads = positive(raw, "hidden_size"), positive(raw, "num_attention_heads")
    kv_heads = positive(raw, "num_key_value_heads", heads)
    divisor(kv_heads, "num_key_value_heads", heads, "num_attention_heads")
    # Qwen3's default is 128 whatever the width; Llama's follows from the width.
    head_dim = positive(raw, "head_dim", 128 if architecture == "Qwen3ForCausalLM" else width // heads)
    if head_dim % 2:
        raise CheckpointError(f"head_dim is {head_dim}; allowed: even numbers")
    return DenseConfig(
        vocab=positive(raw, "vocab_size"),
        width=width,
        layers=positive(raw, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=positive(raw, "intermediate_size"),
        norm_eps=number(raw, "rms_norm_eps", 1e-6),
        max_len=positive(raw, "max_position_embeddings", 2048 if architecture == "LlamaForCausalLM" else 32768),
        tied=bool(raw.get("tie_word_embeddings", False)),
        qk_norm=architecture == "Qwen3ForCausalLM",
        rope=_rope(raw),
    )


def _architecture(raw: Mapping[str, Any]) -> str:
    found = raw.get("architectures")
    if not isinstance(found, list) or len(found) != 1 or found[0] not in ARCHITECTURES:
        raise CheckpointError(f"architectures is {found!r}; allowed: one of {', '.join(ARCHITECTURES)}")
    return found[0]


def rope_fields(raw: Mapping[str, Any], kinds: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """(kind, fields) of `rope_parameters` (transformers 5), or of `rope_scaling` before it. Raises CheckpointError."""
    found = raw.get("rope_parameters")
    key = "rope_parameters" if found is not None else "rope_scaling"
    fields = raw.get(key) or {}
    if not isinstance(fields, dict):
        raise CheckpointError(f"{key} is {fields!r}; allowed: an object or null")
    kind = fields.get("rope_type", fields.get("type", "default"))
    if kind not in kinds:
        raise CheckpointError(f"rope_type in {key} is {kind!r}; allowed: {', '.join(kinds)}")
    return kind, fields


def _rope(raw: Mapping[str, Any]) -> Rope:
    kind, fields = rope_fields(raw, ROPE_TYPES)
    for holder in (raw, fields):
        only(holder, "partial_rotary_factor", (1.0,))
    theta = number(fields, "rope_theta", number(raw, "rope_theta", 10000.0))
    if kind == "default":
        return Rope(theta)
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    factor, low, high, original = (number(fields, name) for name in names)
    if high <= low:
        raise CheckpointError(f"high_freq_factor is {high}; allowed: above low_freq_factor ({low})")
    return Rope(theta, (factor, low, high, original))


def _existing(path: Path) -> Path:
    if not path.is_dir():
        raise CheckpointError(f"checkpoint directory {path} does not exist; expected config.json and {_SINGLE} in it")
    return path


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist; a checkpoint directory needs it") from None
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a {type(value).__name__}; allowed: a JSON object")
    return value


def _open(path: Path, device: str) -> Any:
    try:
        return safe_open(path, framework="pt", device=device)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is not a readable safetensors file: {error}") from error


def _names(path: Path) -> dict[str, Path]:
    return dict.fromkeys(_open(path, "cpu").keys(), path)


def _sharded(path: Path) -> dict[str, Path]:
    """Which shard holds which tensor, by the index, each checked to be there."""
    weight_map = _read_json(path / _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"weight_map in {path / _INDEX} is {weight_map!r}; allowed: tensor name to file name")
    shards = {}
    for file in sorted(set(map(str, weight_map.values()))):
        # Only files beside the index: a name with a folder in it could point anywhere.
        if Path(file).name != file or not file.endswith(".safetensors"):
            raise CheckpointError(f"weight_map in {path / _INDEX} names {file!r}; allowed: *.safetensors beside it")
        shards[file] = _names(path / file)
    for name, file in weight_map.items():
        if name not in shards[file]:
            raise CheckpointError(f"tensor {name} is missing from {path / file}, where {_INDEX} has it")
    return {name: path / file for name, file in weight_map.items()}
