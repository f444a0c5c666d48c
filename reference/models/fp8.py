"""Entries in FP8 by definition (S-KV-4, S-KV-6): e4m3fn, a scale for the keys and one for the values of each layer.

Shapes: `n` tokens of a pass, `N` key-value heads, `H` head size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from draftproof.properties.lib.errors import CheckpointError
from draftproof.reference.memo import ALL_SURE, Memo
from draftproof.reference.models.layers import KV
from draftproof.reference.models.tensors import read_scales

LARGEST_FP8 = 448.0
_LEAST_EXPONENT = -6


def e4m3(x: Tensor) -> Tensor:
    """Return the numbers of e4m3fn nearest to x, ties to even: four significant bits, units of 2^-9, at most 448."""
    size = x.abs().clamp(max=LARGEST_FP8)
    exponent = (torch.frexp(size).exponent - 1).clamp(min=_LEAST_EXPONENT)
    step = torch.pow(2.0, (exponent - 3).to(x.dtype))
    return torch.copysign(torch.round(size / step) * step, x)


class Fp8(NamedTuple):
    """How a model keeps its entries: the scales of keys and values of each layer.

    `model` is what `Following` calls it, `first` the number in a text of the token that its entry 0 takes.
    """

    scales: tuple[tuple[float, float], ...]
    model: str
    first: int

    def store(self, tokens: tuple[int, ...], memo: Memo) -> Fp8Store:
        """Return the memory of one pass over tokens, which follows what a subject stored."""
        following = memo.following
        if following is None:
            return Fp8Store(self.scales, (), None)
        slack = [following.slack(position) for position in range(len(tokens))]
        return Fp8Store(self.scales, following.entries(self.model, tokens, self.first), slack)


class Fp8Store:
    """The memory of one pass; its layers come in order.

    `unsure` is the first row that may have been rounded another way, which no trace tells.
    """

    def __init__(
        self, scales: Sequence[tuple[float, float]], known: Sequence[np.ndarray], slack: Sequence[float] | None
    ) -> None:
        self._scales, self._known, self._slack = scales, known, slack
        self._layer, self.unsure = 0, ALL_SURE

    @property
    def name(self) -> tuple[bytes, ...]:
        """What a pass in this memory depends on besides its inputs."""
        return tuple(layer.tobytes() for layer in self._known)

    def kept(self, k: Tensor, v: Tensor) -> KV:
        """Return keys and values [n, N, H] of the next layer as they are read."""
        scales, layer = self._scales[self._layer], self._layer
        self._layer += 1
        whole = torch.cat((k.flatten(1), v.flatten(1)), dim=1).double()
        scale = torch.ones_like(whole)
        scale[:, : k[0].numel()], scale[:, k[0].numel() :] = scales
        read = self._followed(whole, scale, layer)
        parts = read.to(k.dtype).split([k[0].numel(), v[0].numel()], dim=1)
        return parts[0].view_as(k), parts[1].view_as(v)

    def _followed(self, x: Tensor, scale: Tensor, layer: int) -> Tensor:
        own = e4m3(x / scale) * scale
        if self._slack is None:
            return own
        largest = x.abs().amax(dim=1, keepdim=True).clamp(min=1.0)
        slack = torch.tensor(self._slack, dtype=x.dtype)[:, None] * largest
        # Rounding never turns an order round: all that a number so near may become lies between these.
        least, most = (e4m3((x + sign * slack) / scale) * scale for sign in (-1, 1))
        count = len(self._known[layer]) if layer < len(self._known) else 0
        differ = ((least != most).any(dim=1) & (torch.arange(len(x)) >= count)).nonzero()
        if len(differ):
            self.unsure = min(self.unsure, int(differ[0]))
        if count:
            stored = torch.from_numpy(self._known[layer])
            if stored.shape[1] == x.shape[1]:
                is_number = e4m3(stored / scale[:count]) * scale[:count] == stored
                may_be = is_number & (least[:count] <= stored) & (stored <= most[:count])
                own[:count] = torch.where(may_be, stored, own[:count])
        return own


def scales_of(directory: str, prefixes: Sequence[str]) -> tuple[tuple[float, float], ...]:
    """Return the scales of the attentions with these tensor prefixes; 1 where a directory ("": none) has none.

    Raises CheckpointError for an invalid scale.
    """
    stored = read_scales(Path(directory)) if directory else {}
    return tuple((_scale(stored, prefix, "k"), _scale(stored, prefix, "v")) for prefix in prefixes)


def _scale(stored: Mapping[str, Tensor], prefix: str, part: str) -> float:
    for name in (f"{prefix}.{part}_proj.{part}_scale", f"{prefix}.{part}_scale"):
        if name in stored:
            given = stored[name].to(torch.float32)
            value = given.item() if given.numel() == 1 and given.dim() < 2 else math.nan
            if not 0 < value < math.inf:
                raise CheckpointError(
                    f"invalid tensor {name} of shape {list(given.shape)}: expected one positive number"
                )
            return value
    return 1.0
