"""A full attention layer of Qwen3-Next and Qwen3.5: an output gate beside each query, a partial rotation.

`T` packed tokens, `D` hidden width, `Nq` query heads, `N` kv heads, `H` head size, `Hr` rotated components.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.base import AttentionMetadata, Cache
from draftproof.engine.models.checkpoint import take, take_wide
from draftproof.engine.models.layers import head_norm, inverse_frequencies
from draftproof.properties.formats.checkpoint_config.qwen3_next import GatedDeltaNetConfig


@dataclass(frozen=True)
class GatedAttention:
    """`index` counts the full attention layers. projection [(2Nq + 2N)H, D] gives q, k, v, gate of all heads.

    out [D, NqH]; norms [H] with their 1 added; inv_freq [Hr / 2].
    """

    index: int
    heads: int
    kv_heads: int
    eps: float
    projection: Tensor
    out: Tensor
    q_norm: Tensor
    k_norm: Tensor
    inv_freq: Tensor

    def __call__(self, x: Tensor, metadata: AttentionMetadata, cache: Cache) -> Tensor:
        """[T, D] -> [T, D]."""
        size = self.q_norm.shape[0]
        heads = F.linear(x, self.projection).view(x.shape[0], -1, size)
        q, k, v, gate = heads.split([self.heads, self.kv_heads, self.kv_heads, self.heads], dim=1)
        q, k = head_norm(q, self.q_norm, self.eps), head_norm(k, self.k_norm, self.eps)
        kernels.rope(q, k, metadata.positions, self.inv_freq)
        attended = cache.attend(self.index, q, k, v, metadata, size**-0.5)
        return F.linear((attended * torch.sigmoid(gate)).reshape(x.shape[0], -1), self.out)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.projection, self.out, self.q_norm, self.k_norm, self.inv_freq)


def read_gated_attention(
    config: GatedDeltaNetConfig, tensors: Mapping[str, Tensor], prefix: str, index: int
) -> GatedAttention:
    """Take the tensors below `prefix` and fuse them. Raises CheckpointError."""
    width, size = config.hidden_size, config.head_dim
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    rotary_dim = int(size * config.rope_parameters.partial_rotary_factor)
    # Stored by head: its query, then its gate.
    q_gate = take(tensors, f"{prefix}.q_proj.weight", heads * 2 * size, width).view(heads, 2, size, width)
    k, v = (take(tensors, f"{prefix}.{name}_proj.weight", kv_heads * size, width) for name in "kv")
    return GatedAttention(
        index=index,
        heads=heads,
        kv_heads=kv_heads,
        eps=config.rms_norm_eps,
        projection=torch.cat([q_gate[:, 0].reshape(-1, width), k, v, q_gate[:, 1].reshape(-1, width)]),
        out=take(tensors, f"{prefix}.o_proj.weight", width, heads * size),
        q_norm=read_norm(tensors, f"{prefix}.q_norm.weight", size),
        k_norm=read_norm(tensors, f"{prefix}.k_norm.weight", size),
        inv_freq=inverse_frequencies(config.rope_parameters, rotary_dim).to(k.device),
    )


def read_norm(tensors: Mapping[str, Tensor], name: str, size: int) -> Tensor:
    """Return a norm's weight [size] as it is multiplied with: stored without its 1, kept in float32 at least."""
    return 1.0 + take_wide(tensors, name, size)
