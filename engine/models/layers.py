"""Attention and MLP of a Llama or Qwen3 layer, with fused projections; other architectures use some of them.

`T` packed tokens, `D` hidden width, `Nq` query heads, `N` kv heads, `H` head size, `Hr` rotated components of it,
`F` intermediate width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.base import AttentionMetadata, Cache, CacheShape, TokenInput
from draftproof.engine.models.checkpoint import take
from draftproof.properties.formats.checkpoint_config.base import Llama3RopeParameters, RopeParameters
from draftproof.properties.formats.checkpoint_config.dflash import DFlashConfig
from draftproof.properties.formats.checkpoint_config.eagle3 import Eagle3Config
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig
from draftproof.properties.formats.checkpoint_config.sparse import Glm4MoeConfig


@dataclass(frozen=True)
class LayerSizes:
    """What a layer is made of, with what a configuration leaves out filled in."""

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    qk_norm: bool

    @classmethod
    def of(cls, config: LlamaConfig | DFlashConfig | Eagle3Config | Glm4MoeConfig) -> LayerSizes:
        """Return the sizes of a configuration: heads that share out the hidden size, a kv head for each, by default."""
        return cls(
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads or config.num_attention_heads,
            head_dim=config.head_dim or config.hidden_size // config.num_attention_heads,
            rms_norm_eps=config.rms_norm_eps,
            qk_norm=config.qk_norm,
        )

    def cache_shape(self, layers: int, dtype: torch.dtype) -> CacheShape:
        """Return what `layers` layers keep per token."""
        return CacheShape(layers, self.num_key_value_heads, self.head_dim, self.head_dim, dtype)


@dataclass(frozen=True)
class SelfAttention:
    """Attention of Llama, Qwen3 and GLM-4-MoE; `index` is the layer of the cache.

    projection [(Nq + 2N)H, D] and its bias give q, k, v of all heads; out [D, NqH]; norms [H], both or neither;
    inv_freq [Hr / 2], for the first Hr components of a head.
    """

    index: int
    heads: int
    kv_heads: int
    eps: float
    projection: Tensor
    bias: Tensor | None
    out: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None
    inv_freq: Tensor

    def __call__(self, x: Tensor, metadata: AttentionMetadata, cache: Cache) -> Tensor:
        """[T, D] -> [T, D]."""
        return F.linear(self.attend(F.linear(x, self.projection, self.bias), metadata, cache), self.out)

    def attend_normed(self, x: Tensor, norm: Tensor, metadata: AttentionMetadata, cache: Cache) -> Tensor:
        """Do the norm and all up to the output projection, by kernels for few tokens: x [T, D] -> [T, NqH]."""
        size = self.out.shape[1] // self.heads
        if x.shape[0] == 1 and self.q_norm is None and self.bias is None and 2 * self.inv_freq.shape[0] == size:
            token = TokenInput(x, norm, self.projection, self.eps, self.inv_freq)
            attended = cache.attend_token(self.index, token, metadata, size**-0.5)
            if attended is not None:
                return attended.view(1, -1)
        qkv = x.new_empty((x.shape[0], self.projection.shape[0]))
        kernels.norm_linear(qkv, x, norm, self.projection, self.eps)
        return self.attend(qkv, metadata, cache)

    def attend(self, qkv: Tensor, metadata: AttentionMetadata, cache: Cache) -> Tensor:
        """Do all that is between the projections: qkv [T, (Nq + 2N)H] -> [T, NqH]."""
        size = self.out.shape[1] // self.heads
        heads = qkv.view(qkv.shape[0], -1, size)
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = head_norm(q, self.q_norm, self.eps), head_norm(k, self.k_norm, self.eps)
        kernels.rope(q, k, metadata.positions, self.inv_freq)
        return cache.attend(self.index, q, k, v, metadata, size**-0.5).view(qkv.shape[0], -1)

    def tensors(self) -> tuple[Tensor, ...]:
        optional = (self.bias, self.q_norm, self.k_norm)
        return (self.projection, self.out, self.inv_freq, *(tensor for tensor in optional if tensor is not None))


def read_attention(
    sizes: LayerSizes,
    tensors: Mapping[str, Tensor],
    prefix: str,
    index: int,
    inv_freq: Tensor,
    *,
    biased: bool = False,
    inputs: int = 1,
) -> SelfAttention:
    """Take the tensors below `prefix`, of as many inputs side by side, and fuse them. Raises CheckpointError."""
    width, size = sizes.hidden_size, sizes.head_dim
    kv_rows = sizes.num_key_value_heads * size
    rows = {"q": sizes.num_attention_heads * size, "k": kv_rows, "v": kv_rows}
    parts = [take(tensors, f"{prefix}.{name}_proj.weight", count, inputs * width) for name, count in rows.items()]
    biases = [take(tensors, f"{prefix}.{name}_proj.bias", count) for name, count in rows.items()] if biased else []
    norms = [take(tensors, f"{prefix}.{name}_norm.weight", size) if sizes.qk_norm else None for name in "qk"]
    return SelfAttention(
        index=index,
        heads=sizes.num_attention_heads,
        kv_heads=sizes.num_key_value_heads,
        eps=sizes.rms_norm_eps,
        projection=torch.cat(parts),
        bias=torch.cat(biases) if biases else None,
        out=take(tensors, f"{prefix}.o_proj.weight", width, rows["q"]),
        q_norm=norms[0],
        k_norm=norms[1],
        inv_freq=inv_freq.to(parts[0].device),
    )


def inverse_frequencies(rope: RopeParameters, size: int) -> Tensor:
    """Return [H / 2] float32: by definition what transformers computes on the CPU, llama3 scaling included."""
    exponents = torch.arange(0, size, 2, dtype=torch.int64).float() / size
    plain = 1.0 / (rope.rope_theta**exponents)
    if not isinstance(rope, Llama3RopeParameters):
        return plain
    factor, low, high = rope.factor, rope.low_freq_factor, rope.high_freq_factor
    original = float(rope.original_max_position_embeddings)
    wavelength = 2 * math.pi / plain
    slow = torch.where(wavelength > original / low, plain / factor, plain)
    smooth = (original / wavelength - low) / (high - low)
    between = (wavelength >= original / high) & (wavelength <= original / low)
    return torch.where(between, (1 - smooth) * slow / factor + smooth * slow, slow)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """[T, D] -> [T, D]."""
    out = torch.empty_like(x)
    kernels.rms_norm(out, x, weight, eps)
    return out


def head_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the norm of each head: [T, N, H] -> [T, N, H]."""
    return rms_norm(x.reshape(-1, x.shape[2]), weight, eps).view(x.shape)


@dataclass(frozen=True)
class Mlp:
    """gate_up [2F, D], down [D, F]."""

    gate_up: Tensor
    down: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """[T, D] -> [T, D]: down(silu(gate) * up)."""
        gate_up = F.linear(x, self.gate_up)
        active = gate_up.new_empty((x.shape[0], gate_up.shape[1] // 2))
        kernels.silu_mul(active, gate_up)
        return F.linear(active, self.down)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.gate_up, self.down)


def read_mlp(tensors: Mapping[str, Tensor], prefix: str, width: int, inner: int) -> Mlp:
    """Take the tensors below `prefix` and fuse them. Raises CheckpointError."""
    gate_up = [take(tensors, f"{prefix}.{name}_proj.weight", inner, width) for name in ("gate", "up")]
    return Mlp(torch.cat(gate_up), take(tensors, f"{prefix}.down_proj.weight", width, inner))
