"""The parts of a Llama or Qwen3 layer, with fused projections; other architectures use some of them.

`T` packed tokens, `D` hidden width, `Nq` query heads, `N` kv heads, `H` head size, `F` intermediate width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

from draftproof import kernels
from draftproof.engine.models.base import AttentionMetadata, Cache, CacheShape
from draftproof.engine.models.checkpoint import take
from draftproof.properties.values.checkpoint_config.base import Llama3RopeParameters, RopeParameters
from draftproof.properties.values.checkpoint_config.dflash import DFlashConfig
from draftproof.properties.values.checkpoint_config.llama import LlamaConfig


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
    def of(cls, config: LlamaConfig | DFlashConfig) -> LayerSizes:
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
class LayerWeights:
    """qkv [(Nq + 2N)H, D], out [D, NqH], gate_up [2F, D], down [D, F], and the norms; Llama has no head norms."""

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    mlp_norm: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None

    def tensors(self) -> tuple[Tensor, ...]:
        """All that there are."""
        found = (getattr(self, field.name) for field in fields(self))
        return tuple(tensor for tensor in found if tensor is not None)


def read_layer(sizes: LayerSizes, tensors: Mapping[str, Tensor], prefix: str) -> LayerWeights:
    """Take the tensors below `prefix` and fuse them. Raises CheckpointError."""
    width, size = sizes.hidden_size, sizes.head_dim
    kv_rows = sizes.num_key_value_heads * size
    rows = {"q": sizes.num_attention_heads * size, "k": kv_rows, "v": kv_rows}
    attention = f"{prefix}.self_attn"
    qkv = [take(tensors, f"{attention}.{name}_proj.weight", count, width) for name, count in rows.items()]
    inside = read_mlp(tensors, f"{prefix}.mlp", width, sizes.intermediate_size)
    return LayerWeights(
        qkv=torch.cat(qkv),
        out=take(tensors, f"{attention}.o_proj.weight", width, rows["q"]),
        gate_up=inside.gate_up,
        down=inside.down,
        mlp_norm=take(tensors, f"{prefix}.post_attention_layernorm.weight", width),
        q_norm=take(tensors, f"{attention}.q_norm.weight", size) if sizes.qk_norm else None,
        k_norm=take(tensors, f"{attention}.k_norm.weight", size) if sizes.qk_norm else None,
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


@dataclass(frozen=True)
class Attention:
    """Everything between the qkv projection and the output projection of one layer."""

    sizes: LayerSizes
    inv_freq: Tensor

    def __call__(
        self, layer: int, weights: LayerWeights, qkv: Tensor, metadata: AttentionMetadata, cache: Cache
    ) -> Tensor:
        """qkv [T, (Nq + 2N)H] -> [T, NqH]; the new entries are in the cache afterwards."""
        heads, kv_heads = self.sizes.num_attention_heads, self.sizes.num_key_value_heads
        split = qkv.view(qkv.shape[0], heads + 2 * kv_heads, self.sizes.head_dim)
        q, k, v = split.split([heads, kv_heads, kv_heads], dim=1)
        if weights.q_norm is not None and weights.k_norm is not None:
            eps = self.sizes.rms_norm_eps
            q, k = head_norm(q, weights.q_norm, eps), head_norm(k, weights.k_norm, eps)
        kernels.rope(q, k, metadata.positions, self.inv_freq)
        attended = cache.attend(layer, q, k, v, metadata, self.sizes.head_dim**-0.5)
        return attended.view(qkv.shape[0], -1)


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
        """[T, D] -> [T, D]."""
        return mlp(self, x)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.gate_up, self.down)


def read_mlp(tensors: Mapping[str, Tensor], prefix: str, width: int, inner: int) -> Mlp:
    """Take the tensors below `prefix` and fuse them. Raises CheckpointError."""
    gate_up = [take(tensors, f"{prefix}.{name}_proj.weight", inner, width) for name in ("gate", "up")]
    return Mlp(torch.cat(gate_up), take(tensors, f"{prefix}.down_proj.weight", width, inner))


def mlp(weights: LayerWeights | Mlp, x: Tensor) -> Tensor:
    """[T, D] -> [T, D]: down(silu(gate) * up)."""
    gate_up = F.linear(x, weights.gate_up)
    active = gate_up.new_empty((x.shape[0], gate_up.shape[1] // 2))
    kernels.silu_mul(active, gate_up)
    return F.linear(active, weights.down)


# At one token the narrow kernels read weights faster than cuBLAS, at four no more (benchmarks/linear_speed.py). They
# hold a whole row of a weight at once, hence the second limit.
NARROW_TOKENS, NARROW_INPUTS = 1, 8192


def is_narrow(x: Tensor, sizes: LayerSizes) -> bool:
    """Return if the narrow kernels serve activations x [T, D]: a choice by shape and device, the same at replays."""
    inputs = max(sizes.hidden_size, sizes.intermediate_size, sizes.num_attention_heads * sizes.head_dim)
    return x.is_cuda and x.shape[0] <= NARROW_TOKENS and inputs <= NARROW_INPUTS and x.dtype != torch.float64


def narrow_layer(
    weights: LayerWeights, norm: Tensor, residual: Tensor, attend: Callable[[Tensor], Tensor], eps: float
) -> None:
    """One layer over the residual stream [T, D], in place, with norms, gate and additions inside the projections.

    `attend` takes qkv [T, (Nq + 2N)H] to [T, NqH].
    """
    qkv = residual.new_empty((residual.shape[0], weights.qkv.shape[0]))
    kernels.norm_linear(qkv, residual, norm, weights.qkv, eps)
    kernels.linear_add(residual, attend(qkv), weights.out)
    active = residual.new_empty((residual.shape[0], weights.down.shape[1]))
    kernels.norm_gate_up(active, residual, weights.mlp_norm, weights.gate_up, eps)
    kernels.linear_add(residual, active, weights.down)
