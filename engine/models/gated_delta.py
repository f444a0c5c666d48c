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
from draftproof.engine.models.base import AttentionMetadata, Cache, LinearSizes, RecurrentWeights
from draftproof.engine.models.checkpoint import take, take_wide
from draftproof.properties.formats.checkpoint_config.qwen3_next import GatedDeltaNetConfig, Qwen3NextConfig


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
        return (self.projection, *self.recurrent.parameters, self.norm, self.out)


def linear_sizes(config: GatedDeltaNetConfig) -> LinearSizes:
    """Return the sizes of a configuration's linear layers."""
    return LinearSizes(
        key_heads=config.linear_num_key_heads,
        value_heads=config.linear_num_value_heads,
        key_dim=config.linear_key_head_dim,
        value_dim=config.linear_value_head_dim,
        conv=config.linear_conv_kernel_dim,
    )


def read_gated_delta(config: GatedDeltaNetConfig, tensors: Mapping[str, Tensor], prefix: str, index: int) -> GatedDelta:
    """Take the tensors below `prefix` and fuse them. Raises CheckpointError."""
    sizes, width = linear_sizes(config), config.hidden_size
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
