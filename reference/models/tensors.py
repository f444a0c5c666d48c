"""Read the tensors of a Hugging Face checkpoint directory as float64, or rounded to another dtype.

A directory holds `config.json` and either `model.safetensors` or shards listed in `model.safetensors.index.json`.
Each tensor is read once and widened to float64, which is exact for every dtype allowed.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from draftproof.properties.formats.checkpoint_config import read_object
from draftproof.properties.lib.errors import CheckpointError
from draftproof.reference.models.stacked import stacked_shapes, unstacked

Shapes = dict[str, tuple[int, ...]]
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
LM_HEAD = "lm_head.weight"

_SCALES = (".k_scale", ".v_scale")
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_WHOLE = {"d2t": (torch.int64, torch.int32), "t2d": (torch.bool,)}
"""Tensors that are no floats, by name."""


def read_tensors(
    directory: str | Path,
    shapes: Shapes,
    optional: Shapes | None = None,
    ignored: tuple[str, ...] = (),
    ignored_prefixes: tuple[str, ...] = (),
    dtype: torch.dtype = torch.float64,
) -> dict[str, torch.Tensor]:
    """Read the named tensors as `dtype`, checking names and shapes.

    `optional` ones may be absent; any other tensor in the files that is not `ignored` and has none of the
    `ignored_prefixes` is an error, since a weight that is never read (a bias, a further layer) means that the model is
    not the one computed. Experts that are stored as one tensor are named, and returned, one by one.
    """
    location = _locate(Path(directory))
    shapes, optional = stacked_shapes(shapes, location), stacked_shapes(optional or {}, location)
    expected = {**shapes, **optional}
    missing = sorted(shapes.keys() - location.keys())
    if missing:
        raise CheckpointError(f"{directory}: tensor {missing[0]} is missing ({len(missing)} missing in all)")
    # Early Llama checkpoints store the rotary frequencies, which are a function of the configuration; scales of entries
    # are read by `read_scales`, where these are kept in FP8.
    known = {*expected, *ignored}
    unread = [name for name in location if name not in known and not name.startswith(ignored_prefixes)]
    extra = sorted(name for name in unread if not name.endswith(("rotary_emb.inv_freq", *_SCALES)))
    if extra:
        raise CheckpointError(f"{directory}: tensor {extra[0]} is unknown to the architecture ({len(extra)} in all)")
    wanted = {name: path for name, path in location.items() if name in expected}
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(set(wanted.values())):
        tensors |= _read_file(path, [name for name, where in wanted.items() if where == path], expected)
    return unstacked({name: tensor if name in _WHOLE else tensor.to(dtype) for name, tensor in tensors.items()})


def read_scales(directory: Path) -> dict[str, torch.Tensor]:
    """Return all tensors of a checkpoint directory that are scales of entries, by name. Raises CheckpointError."""
    found = {}
    for name, path in _locate(directory).items():
        if name.endswith(_SCALES):
            with _open(path) as file:
                found[name] = file.get_tensor(name)
    return found


def tensor_names(directory: str | Path) -> frozenset[str]:
    """Return the names of all tensors of a checkpoint directory. Raises CheckpointError."""
    return frozenset(_locate(Path(directory)))


def _locate(directory: Path) -> dict[str, Path]:
    """Which file holds each tensor."""
    single, index = directory / SINGLE, directory / INDEX
    if single.is_file():
        with _open(single) as file:
            return dict.fromkeys(file.keys(), single)
    if not index.is_file():
        raise _no_weights(directory)
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise CheckpointError(f"{index}: weight_map is {type(weight_map).__name__}; an object of file names is needed")
    return {name: _shard(directory, file, index) for name, file in weight_map.items()}


def _no_weights(directory: Path) -> CheckpointError:
    pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in directory.glob(pattern))
    found = f"found the pickle {pickles[0]}, which is never opened" if pickles else "no weights found"
    return CheckpointError(f"{directory}: {found}: expected {SINGLE}, or {INDEX} with its shards")


def _shard(directory: Path, file: str, index: Path) -> Path:
    path = directory / file
    if Path(file).name != file or not file.endswith(".safetensors"):
        raise CheckpointError(f"{index}: weight_map names {file!r}: expected a .safetensors file beside the index")
    if not path.is_file():
        raise CheckpointError(f"{index}: weight_map names {file!r}, which does not exist")
    return path


def _read_file(path: Path, names: list[str], expected: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    with _open(path) as file:
        absent = [name for name in names if name not in set(file.keys())]
        if absent:
            raise CheckpointError(f"{path}: tensor {absent[0]} is missing, although the index says that it is there")
        return {name: _widened(file.get_tensor(name), name, expected[name], path) for name in names}


def _widened(tensor: torch.Tensor, name: str, shape: tuple[int, ...], path: Path) -> torch.Tensor:
    if tuple(tensor.shape) != shape:
        raise CheckpointError(f"{path}: tensor {name} has shape {tuple(tensor.shape)}; config.json asks for {shape}")
    dtypes = _WHOLE.get(name, _DTYPES)
    if tensor.dtype not in dtypes:
        allowed = ", ".join(str(dtype) for dtype in dtypes)
        raise CheckpointError(f"{path}: tensor {name} has dtype {tensor.dtype}: expected {allowed}")
    if name in _WHOLE:
        return tensor
    widened = tensor.to(torch.float64)
    if not torch.isfinite(widened).all():
        raise CheckpointError(f"{path}: tensor {name} holds NaN or infinity: expected finite values")
    return widened


def _open(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise CheckpointError(f"{path}: broken or truncated safetensors file, {error}") from error
