"""Probe weights: the checkpoint of a probe model, as odd integers modulo 2^64 drawn by SplitMix64.

An input that engine and reference both read, as they read a safetensors file; the arithmetic done with them is each
side's own. `V` vocabulary, `L` lanes of the target, `D` lanes of the head, `N` heads, `H` head sizes.
Source of the generator: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014).
"""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np

from draftproof.properties.values.scenario import Linear, ProbeHead, ProbeModel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def splitmix(x: np.ndarray) -> np.ndarray:
    """The SplitMix64 finalizer, elementwise on uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def draw(seed: int, name: str, *shape: int) -> np.ndarray:
    """Odd uint64 weights, a function of (seed, name, index) only."""
    base = splitmix(np.array([(seed << 32) ^ zlib.crc32(name.encode())], dtype=np.uint64))
    count = np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(1)
    return (splitmix(base + count * GOLDEN) | np.uint64(1)).reshape(shape)


def _layer(seed: int, prefix: str, spec: ProbeModel | ProbeHead) -> dict[str, np.ndarray]:
    sizes = (spec.heads * spec.key_dim, spec.kv_heads * spec.key_dim, spec.kv_heads * spec.value_dim)
    weights = {
        f"{prefix}.{name}.weight": draw(seed, f"{prefix}.{name}", size, spec.lanes)
        for name, size in zip("qkv", sizes, strict=True)
    }
    weights |= {
        f"{prefix}.{name}.position": draw(seed, f"{prefix}.{name}.p", size)
        for name, size in zip("qkv", sizes, strict=True)
    }
    weights[f"{prefix}.o.weight"] = draw(seed, f"{prefix}.o", spec.lanes, spec.heads * spec.value_dim)
    weights[f"{prefix}.mlp.weight"] = draw(seed, f"{prefix}.mlp", spec.lanes, spec.lanes)
    weights[f"{prefix}.q.gate"] = np.ones(sizes[0], dtype=np.uint64)
    return weights


def _linear_layer(seed: int, prefix: str, sizes: Linear, lanes: int) -> dict[str, np.ndarray]:
    """A gated delta net layer: D channels of the convolution (queries, keys, values), C its width, U value heads of E,
    H the key size. `start.*` is the state of a new request."""
    heads, channels, inner = sizes.value_heads, sizes.channels, sizes.value_heads * sizes.value_dim
    shapes = {
        "qkv.weight": (channels, lanes),
        "z.weight": (inner, lanes),
        "a.weight": (heads, lanes),
        "b.weight": (heads, lanes),
        "conv.weight": (channels, sizes.conv),
        "a_log": (heads,),
        "dt_bias": (heads,),
        "norm.weight": (sizes.value_dim,),
        "o.weight": (lanes, inner),
        "mlp.weight": (lanes, lanes),
        "start.conv": (sizes.conv - 1, channels),
        "start.ssm": (heads, sizes.key_dim, sizes.value_dim),
    }
    weights = {f"{prefix}.{name}": draw(seed, f"{prefix}.{name}", *shape) for name, shape in shapes.items()}
    if not sizes.start:
        for name in ("start.conv", "start.ssm"):
            weights[f"{prefix}.{name}"] = np.zeros(shapes[name], dtype=np.uint64)
    return weights


@lru_cache(maxsize=64)
def target_weights(spec: ProbeModel) -> dict[str, np.ndarray]:
    """Names and shapes: embed [V,L], unembed [V,L], of a full attention layer layers.i.{q,k,v}.{weight,position},
    q.gate, o.weight, mlp.weight; of a linear one what `_linear_layer` lists.

    In the first full attention layer the first query head is gated to zero (it weighs every visible token 1) and the
    first value row copies lane 0 of its input, which the layers before leave as the embedding's: that head's first
    output is the *carry*, the sum over visible tokens of mix(embed[t, 0] + p * c), which the head of the draft can
    continue.
    """
    weights = {"embed": draw(spec.seed, "embed", spec.vocab, spec.lanes)}
    weights["unembed"] = draw(spec.seed, "unembed", spec.vocab, spec.lanes)
    for layer, kind in enumerate(spec.types):
        if kind == "linear_attention":
            assert spec.linear is not None
            weights |= _linear_layer(spec.seed, f"layers.{layer}", spec.linear, spec.lanes)
        else:
            weights |= _layer(spec.seed, f"layers.{layer}", spec)
    first = carry_layer(spec)
    for layer in range(first):
        weights[f"layers.{layer}.o.weight"][0] = 0
        weights[f"layers.{layer}.mlp.weight"][0] = 0
    weights[f"layers.{first}.q.gate"][: spec.key_dim] = 0
    carry = np.zeros(spec.lanes, dtype=np.uint64)
    carry[0] = 1
    weights[f"layers.{first}.v.weight"][0] = carry
    return weights


def carry_layer(spec: ProbeModel) -> int:
    """The first full attention layer, which computes the carry."""
    return spec.types.index("full_attention")


@lru_cache(maxsize=64)
def head_weights(head: ProbeHead, target: ProbeModel) -> dict[str, np.ndarray]:
    """Names and shapes: fc [D, 2L] over (embedding, hidden), layers.0.*, out [L, D]; and what an EAGLE head shares with
    its target: embed, unembed and the position constant of the carry."""
    shared = target_weights(target)
    weights = {
        "embed": shared["embed"],
        "unembed": shared["unembed"],
        "carry.position": shared[f"layers.{carry_layer(target)}.v.position"][:1],
        "fc": draw(head.seed, "head.fc", head.lanes, 2 * target.lanes),
        "out": draw(head.seed, "head.out", target.lanes, head.lanes),
    }
    weights |= _layer(head.seed, "layers.0", head)
    return weights
