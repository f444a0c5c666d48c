"""Tensors of Hugging Face checkpoints: safetensors, read lazily, under the names that transformers gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from draftproof.properties.formats.checkpoint_config import read_object
from draftproof.properties.lib.errors import CheckpointError

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
# Early Llama checkpoints store the rotary frequencies, which follow from config.json; scales of entries are read where
# these are kept in FP8.
_OPTIONAL = ("rotary_emb.inv_freq", ".k_scale", ".v_scale")


class Tensors(Mapping[str, Tensor]):
    """Tensors by name from safetensors files, each read onto `device` and cast to `dtype` when asked for."""

    def __init__(self, files: Mapping[str, Path], device: str, dtype: torch.dtype) -> None:
        self._files, self._device, self._dtype = files, device, dtype
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        return self.stored(name).to(self._dtype)

    def raw(self, name: str) -> Tensor:
        """Return the tensor in the dtype of its file, whatever that is."""
        self._read.add(name)
        tensor: Tensor = _open(self._files[name], self._device).get_tensor(name)
        return tensor

    def stored(self, name: str) -> Tensor:
        """Return the tensor in the dtype of its file, which is one of floats."""
        tensor = self.raw(name)
        if not tensor.is_floating_point():
            found = f"invalid tensor {name} in {self._files[name]}: expected a floating-point dtype, not {tensor.dtype}"
            raise CheckpointError(found)
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self._files

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
        """Refuse unread tensors whose names begin with one of `parts`, as refuse_unread does for all."""
        self._refuse(name for name in self if name.startswith(parts))

    def _refuse(self, names: Iterable[str]) -> None:
        unread = sorted(name for name in names if name not in self._read and not name.endswith(_OPTIONAL))
        if unread:
            raise CheckpointError(f"tensor {unread[0]} in {self._files[unread[0]]} is unknown to the architecture")


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


def take(tensors: Mapping[str, Tensor], name: str, *shape: int) -> Tensor:
    """Return the tensor `name`. Raises CheckpointError if it is missing or not of `shape`."""
    if name not in tensors:
        raise CheckpointError(f"tensor {name} is missing from the checkpoint (expected shape {list(shape)})")
    tensor = tensors[name]
    if tuple(tensor.shape) != shape:
        raise CheckpointError(f"tensor {name} has shape {list(tensor.shape)}; expected {list(shape)}")
    return tensor


def take_wide(tensors: Mapping[str, Tensor], name: str, *shape: int) -> Tensor:
    """As `take`, in float32 at least, without a rounding to the model's dtype on the way."""
    taken = take(tensors, name, *shape)
    stored = tensors.stored(name) if isinstance(tensors, Tensors) else taken
    return stored.to(torch.promote_types(taken.dtype, torch.float32))


def take_integers(tensors: Mapping[str, Tensor], name: str, size: int) -> Tensor:
    """Return a vector of whole numbers or truth values, as int64. Raises CheckpointError as `take`."""
    if name not in tensors:
        raise CheckpointError(f"tensor {name} is missing from the checkpoint (expected shape {[size]})")
    tensor = tensors.raw(name) if isinstance(tensors, Tensors) else tensors[name]
    if tuple(tensor.shape) != (size,) or tensor.is_floating_point():
        found = f"tensor {name} has shape {list(tensor.shape)} of {tensor.dtype}"
        raise CheckpointError(f"{found}; expected {[size]} of whole numbers")
    return tensor.to(torch.int64)


def _existing(path: Path) -> Path:
    if not path.is_dir():
        raise CheckpointError(f"checkpoint directory {path} does not exist; expected config.json and {_SINGLE} in it")
    return path


def _open(path: Path, device: str) -> Any:
    try:
        return safe_open(path, framework="pt", device=device)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is not a readable safetensors file: {error}") from error


def _names(path: Path) -> dict[str, Path]:
    return dict.fromkeys(_open(path, "cpu").keys(), path)


def _sharded(path: Path) -> dict[str, Path]:
    """Which shard holds which tensor, by the index, each checked to be there."""
    weight_map = read_object(path / _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"invalid weight_map {weight_map!r} in {path / _INDEX}: expected tensor and file names")
    shards = {}
    for file in sorted(set(map(str, weight_map.values()))):
        # Only files beside the index: a name with a folder in it could point anywhere.
        if Path(file).name != file or not file.endswith(".safetensors"):
            raise CheckpointError(f"invalid shard {file!r} in {path / _INDEX}: expected *.safetensors beside it")
        shards[file] = _names(path / file)
    for name, file in weight_map.items():
        if name not in shards[file]:
            raise CheckpointError(f"tensor {name} is missing from {path / file}, where {_INDEX} has it")
    return {name: path / file for name, file in weight_map.items()}
