"""A gated delta net layer of Qwen3-Next and Qwen3.5.

`T` packed tokens, `D` hidden width, `Q` channels of the convolution, `N` key heads, `U` value heads (G for each key
head), `H` key size, `E` value size, `C` conv width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.base import AttentionMetadata, Cache, RecurrentWeights, StateShape
from draftproof.engine.models.checkpoint import take, take_wide
from draftproof.properties.values.checkpoint_config.qwen3_next import GatedDeltaNetConfig, Qwen3NextConfig


@dataclass(frozen=True)
class LinearSizes:
    """Key head u // (value_heads / key_heads) serves value head u; `conv` is C."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int

    @classmethod
    def of(cls, config: GatedDeltaNetConfig) -> LinearSizes:
        """Return the sizes of a configuration."""
        return cls(
            key_heads=config.linear_num_key_heads,
            value_heads=config.linear_num_value_heads,
            key_dim=config.linear_key_head_dim,
            value_dim=config.linear_value_head_dim,
            conv=config.linear_conv_kernel_dim,
        )

    @property
    def keys(self) -> int:
        """Components of all keys, or of all queries."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Components of all values."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Inputs of the convolution: all queries, all keys, all values."""
        return 2 * self.keys + self.values

    def state_shape(self, layers: int, dtype: torch.dtype) -> StateShape | None:
        """Return what `layers` linear layers keep of a request; None without any."""
        if not layers:
            return None
        heads = (self.key_heads, self.value_heads, self.key_dim, self.value_dim)
        return StateShape(layers, *heads, self.conv, dtype, torch.promote_types(dtype, torch.float32))


@dataclass(frozen=True)
class GatedDelta:
    """`index` counts the linear layers. projection [Q + UE + 2U, D] gives q, k, v of all heads, then z, b, a."""

    index: int
    sizes: LinearSizes
    eps: float
    projection: Tensor
    recurrent: RecurrentWeights
    norm: Tensor
    out: Tensor

    def __call__(self, x: Tensor, metadata: AttentionMetadata, cache: Cache) -> Tensor:
        """[T, D] -> [T, D]."""
        sizes = self.sizes
        parts = [sizes.channels, sizes.values, sizes.value_heads, sizes.value_heads]
        mixed, z, b, a = F.linear(x, self.projection).split(parts, dim=1)
        rows = cache.recur(self.index, self.recurrent, mixed, a, b, metadata).reshape(-1, sizes.value_dim)
        normed = torch.empty_like(rows)
        kernels.gated_norm(normed, rows, z.reshape(-1, sizes.value_dim), self.norm, self.eps)
        return F.linear(normed.view(x.shape[0], sizes.values), self.out)

    def tensors(self) -> tuple[Tensor, ...]:
        recurrent = (self.recurrent.conv, self.recurrent.a_log, self.recurrent.dt_bias)
        return (self.projection, *recurrent, self.norm, self.out)


def read_gated_delta(config: GatedDeltaNetConfig, tensors: Mapping[str, Tensor], prefix: str, index: int) -> GatedDelta:
    """Take the tensors below `prefix` and fuse them. Raises CheckpointError."""
    sizes, width = LinearSizes.of(config), config.hidden_size
    # Qwen3-Next stores the projections interleaved by key head, Qwen3.5 one after the other.
    read = _interleaved if isinstance(config, Qwen3NextConfig) else _split
    conv = take(tensors, f"{prefix}.conv1d.weight", sizes.channels, 1, sizes.conv)
    return GatedDelta(
        index=index,
        sizes=sizes,
        eps=config.rms_norm_eps,
        projection=torch.cat(read(sizes, tensors, prefix, width)),
        recurrent=RecurrentWeights(
            # Channels side by side in memory: what the kernels read fastest.
            conv=conv.squeeze(1).t().contiguous().t(),
            a_log=take_wide(tensors, f"{prefix}.A_log", sizes.value_heads),
            dt_bias=take_wide(tensors, f"{prefix}.dt_bias", sizes.value_heads),
        ),
        norm=take_wide(tensors, f"{prefix}.norm.weight", sizes.value_dim),
        out=take(tensors, f"{prefix}.out_proj.weight", width, sizes.values),
    )


def _split(sizes: LinearSizes, tensors: Mapping[str, Tensor], prefix: str, width: int) -> tuple[Tensor, ...]:
    """Qwen3.5: stored in the order that we use."""
    rows = {"qkv": sizes.channels, "z": sizes.values, "b": sizes.value_heads, "a": sizes.value_heads}
    return tuple(take(tensors, f"{prefix}.in_proj_{name}.weight", count, width) for name, count in rows.items())


def _interleaved(sizes: LinearSizes, tensors: Mapping[str, Tensor], prefix: str, width: int) -> tuple[Tensor, ...]:
    """Qwen3-Next: for each key head its query, key, the values and the z of its G value heads; likewise b and a."""
    heads, group = sizes.key_heads, sizes.value_heads // sizes.key_heads
    values = group * sizes.value_dim
    qkvz = take(tensors, f"{prefix}.in_proj_qkvz.weight", 2 * (sizes.keys + sizes.values), width)
    ba = take(tensors, f"{prefix}.in_proj_ba.weight", 2 * sizes.value_heads, width)
    by_head = qkvz.view(heads, -1, width).split([sizes.key_dim, sizes.key_dim, values, values], dim=1)
    gates = ba.view(heads, -1, width).split([group, group], dim=1)
    return tuple(part.reshape(-1, width) for part in (*by_head, *gates))
