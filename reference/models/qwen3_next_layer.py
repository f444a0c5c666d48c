"""The mixers of Qwen3-Next and Qwen3.5 in float64, straight from their definitions.

They are full attention with a gate and a gated delta net; every norm but the delta net's own multiplies by 1 + weight.

Shapes: `n` tokens of one sequence from position zero, `D` hidden size. Full attention: `Nq` query heads, `N` key-value
heads, `H` head size. Delta net: `N` key heads, `H` key size, `U` value heads, `E` value size, `G` value heads of a key
head, `C` width of the convolution, `Q` channels of it, 2*N*H + U*E: all queries, all keys, all values.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.properties.formats.checkpoint_config.qwen3_next import GatedDeltaNetConfig, Qwen3NextConfig
from draftproof.properties.values.scenario import LayerType
from draftproof.reference.models.layers import KV, Places, attend_causally, rms_norm, rotate_first, silu

FULL_LAYER: LayerType = "full_attention"
_LINEAR: LayerType = "linear_attention"

_L2_EPS = 1e-6
_SOFTPLUS_LINEAR_ABOVE = 20.0


@dataclass(frozen=True)
class DeltaNetSizes:
    """Sizes of the gated delta net layers: N key heads of H, U value heads of E, a convolution C wide."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int

    @classmethod
    def of(cls, config: GatedDeltaNetConfig) -> "DeltaNetSizes":
        """Return the sizes of a configuration."""
        return cls(
            key_heads=config.linear_num_key_heads,
            value_heads=config.linear_num_value_heads,
            key_dim=config.linear_key_head_dim,
            value_dim=config.linear_value_head_dim,
            conv=config.linear_conv_kernel_dim,
        )

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values of all heads."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


def layer_types(config: GatedDeltaNetConfig) -> tuple[LayerType, ...]:
    """Return `layer_types`, or where it is absent every `full_attention_interval`-th layer full attention."""
    if config.layer_types is not None:
        return tuple(FULL_LAYER if kind == FULL_LAYER else _LINEAR for kind in config.layer_types)
    interval = config.full_attention_interval
    return tuple(_LINEAR if (i + 1) % interval else FULL_LAYER for i in range(config.num_hidden_layers))


def centred_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm by 1 + weight."""
    return rms_norm(x, 1.0 + weight, eps)


def gated_attention(
    x: Tensor, weights: Mapping[str, Tensor], config: GatedDeltaNetConfig, places: Places | None = None
) -> tuple[Tensor, KV]:
    """Causal grouped-query attention over x [n, D] from position 0, its output times the sigmoid of a gate.

    The rows of `q_proj` are, head by head, H of the query and H of the gate. Returns the output [n, D] and (k, v), each
    [n, N, H], k after RoPE: what a KV cache holds.
    """
    size, eps = config.head_dim, config.rms_norm_eps
    both, k, v = (
        (x @ weights[f"self_attn.{name}_proj.weight"].T).unflatten(-1, (-1, width))
        for name, width in (("q", 2 * size), ("k", size), ("v", size))
    )
    q, gate = both.chunk(2, dim=-1)
    q = centred_norm(q, weights["self_attn.q_norm.weight"], eps)
    k = centred_norm(k, weights["self_attn.k_norm.weight"], eps)
    rope = config.rope_parameters
    q, k = (rotate_first(part, rope, int(size * rope.partial_rotary_factor), places) for part in (q, k))
    out = attend_causally(q, k, v, places) * torch.sigmoid(gate).flatten(1)
    return out @ weights["self_attn.o_proj.weight"].T, (k, v)


def delta_net(x: Tensor, weights: Mapping[str, Tensor], config: GatedDeltaNetConfig) -> tuple[Tensor, Tensor]:
    """Return a gated delta net's output [n, D] over x [n, D] from an empty state, and its state after each token.

    Row t of the second is the state after tokens 0 .. t: the last C-1 inputs of the convolution, oldest first, each [Q]
    (zeros before the first token), then the recurrent state [U, H, E]; flat. Source: Yang et al., Gated Delta Networks
    (2024); the constants are those of Qwen3-Next as transformers runs it.
    """
    sizes = DeltaNetSizes.of(config)
    inputs, z, b, a = _project(x, weights, config)
    padded = torch.cat((torch.zeros(sizes.conv - 1, sizes.channels, dtype=x.dtype), inputs))
    windows = padded.unfold(0, sizes.conv, 1)
    q, k, v = _split(silu((windows * weights["linear_attn.conv1d.weight"][:, 0]).sum(-1)), sizes)
    rate = torch.exp(weights["linear_attn.A_log"])
    decay = torch.exp(-rate * _softplus(a + weights["linear_attn.dt_bias"]))
    out, recurrent = _delta_rule(_unit(q) / sizes.key_dim**0.5, _unit(k), v, decay, torch.sigmoid(b))
    normed = rms_norm(out, weights["linear_attn.norm.weight"], config.rms_norm_eps) * silu(z)
    kept = windows[:, :, 1:].transpose(1, 2)
    states = torch.cat((kept.flatten(1), recurrent.flatten(1)), dim=1)
    return normed.flatten(1) @ weights["linear_attn.out_proj.weight"].T, states


def _project(x: Tensor, weights: Mapping[str, Tensor], config: GatedDeltaNetConfig) -> tuple[Tensor, ...]:
    """Return the convolution's inputs [n, Q], the gate z [n, U, E], and b, a [n, U] of x [n, D]."""
    n, sizes = x.shape[0], DeltaNetSizes.of(config)
    if not isinstance(config, Qwen3NextConfig):
        parts = [x @ weights[f"linear_attn.in_proj_{name}.weight"].T for name in ("qkv", "z", "b", "a")]
        return parts[0], parts[1].reshape(n, sizes.value_heads, sizes.value_dim), parts[2], parts[3]
    # Stored by key head: its query, its key, the values of its G value heads, then their gates.
    group = sizes.value_heads // sizes.key_heads
    values = group * sizes.value_dim
    mixed = (x @ weights["linear_attn.in_proj_qkvz.weight"].T).reshape(n, sizes.key_heads, -1)
    q, k, v, z = mixed.split((sizes.key_dim, sizes.key_dim, values, values), dim=-1)
    b, a = (x @ weights["linear_attn.in_proj_ba.weight"].T).reshape(n, sizes.key_heads, -1).split(group, dim=-1)
    inputs = torch.cat([part.flatten(1) for part in (q, k, v)], dim=1)
    return inputs, z.reshape(n, sizes.value_heads, sizes.value_dim), b.flatten(1), a.flatten(1)


def _split(mixed: Tensor, sizes: DeltaNetSizes) -> tuple[Tensor, Tensor, Tensor]:
    """q, k [n, U, H] and v [n, U, E] of [n, Q]; value head u uses key head u // G."""
    keys, values = sizes.key_heads * sizes.key_dim, sizes.value_heads * sizes.value_dim
    q, k, v = mixed.split((keys, keys, values), dim=-1)
    group = sizes.value_heads // sizes.key_heads
    q, k = (part.unflatten(1, (sizes.key_heads, sizes.key_dim)).repeat_interleave(group, dim=1) for part in (q, k))
    return q, k, v.unflatten(1, (sizes.value_heads, sizes.value_dim))


def _delta_rule(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """One token at a time over q, k [n, U, H], v [n, U, E], decay, beta [n, U]: [n, U, E] and states [n, U, H, E]."""
    out = torch.empty_like(v)
    states = torch.empty((*k.shape, v.shape[-1]), dtype=v.dtype)
    state = torch.zeros_like(states[0])
    for t in range(v.shape[0]):
        state = decay[t, :, None, None] * state
        known = (k[t, :, None] @ state)[:, 0]
        update = beta[t, :, None] * (v[t] - known)
        state = state + k[t, :, :, None] * update[:, None, :]
        out[t] = (q[t, :, None] @ state)[:, 0]
        states[t] = state
    return out, states


def _unit(x: Tensor) -> Tensor:
    """x divided by its length over the last axis, which is kept away from zero."""
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) + _L2_EPS)


def _softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), and x itself where that is large."""
    return torch.where(x > _SOFTPLUS_LINEAR_ABOVE, x, torch.log1p(torch.exp(x)))
