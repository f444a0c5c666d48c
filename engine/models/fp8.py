"""Entries in FP8: the scales of every layer, as a checkpoint has them. `L` layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from torch import Tensor

from draftproof.engine.models.base import Network
from draftproof.engine.models.checkpoint import take_wide
from draftproof.properties.lib.errors import CheckpointError


def keep_in_fp8(model: Network, tensors: Mapping[str, Tensor], prefixes: Sequence[str]) -> None:
    """Let a model that has just been read keep its entries in FP8; `prefixes` are the names of its L attentions.

    Raises CheckpointError for an invalid scale.
    """
    scales = tuple((_scale(tensors, prefix, "k"), _scale(tensors, prefix, "v")) for prefix in prefixes)
    model.cache_shape = replace(model.cache_shape, fp8=scales)


def _scale(tensors: Mapping[str, Tensor], prefix: str, part: str) -> float:
    """Return the scale of keys or of values below `prefix`, 1 without one."""
    names = (f"{prefix}.{part}_proj.{part}_scale", f"{prefix}.{part}_scale")
    found = next((name for name in names if name in tensors), None)
    if found is None:
        return 1.0
    shape = tuple(tensors[found].shape)
    value = float(take_wide(tensors, found, *shape)) if shape in ((), (1,)) else math.nan
    if not (math.isfinite(value) and value > 0):
        raise CheckpointError(f"invalid tensor {found} of shape {list(shape)}: expected one positive number")
    return value
