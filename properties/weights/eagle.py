"""Random EAGLE-1 head weights, a function of (sizes, seed) that engine and reference both read.

Names and shapes are as in SafeAILab's EAGLE-1 checkpoints. `D` hidden size, `F` intermediate size, `Nq` query heads,
`N` key-value heads, `H` head size.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class HeadSizes:
    """Sizes of the head's one decoder layer; `qk_norm` for an architecture that normalises queries and keys."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    qk_norm: bool


def random_head(sizes: HeadSizes, seed: int) -> dict[str, np.ndarray]:
    """Return float32 tensors by name, in a fixed order; the same on every machine and numpy version.

    Weights are uniform with variance 1 / fan-in, so that states neither fade nor grow along a chain and attention is
    neither flat nor one-hot; norm weights are uniform in 0.5 .. 1.5. Raises
    ValueError for a seed outside 0 .. 2^128 - 1.
    """
    if not 0 <= seed < 1 << 128:
        raise ValueError(f"invalid seed {seed}: expected 0 .. 2^128 - 1")
    bits = np.random.Philox(key=seed)
    d, f, h = sizes.hidden, sizes.intermediate, sizes.head_dim
    q, kv = sizes.heads * h, sizes.kv_heads * h
    attention = "layers.0.self_attn."
    tensors = {
        "fc.weight": _matrix(bits, d, 2 * d),
        f"{attention}q_proj.weight": _matrix(bits, q, d),
        f"{attention}k_proj.weight": _matrix(bits, kv, d),
        f"{attention}v_proj.weight": _matrix(bits, kv, d),
        f"{attention}o_proj.weight": _matrix(bits, d, q),
        "layers.0.mlp.gate_proj.weight": _matrix(bits, f, d),
        "layers.0.mlp.up_proj.weight": _matrix(bits, f, d),
        "layers.0.mlp.down_proj.weight": _matrix(bits, d, f),
        "layers.0.post_attention_layernorm.weight": _norm(bits, d),
    }
    if sizes.qk_norm:
        tensors |= {f"{attention}q_norm.weight": _norm(bits, h), f"{attention}k_norm.weight": _norm(bits, h)}
    return tensors


def _matrix(bits: np.random.Philox, rows: int, columns: int) -> np.ndarray:
    scale = np.float32((3.0 / columns) ** 0.5)
    return _uniform(bits, rows * columns).reshape(rows, columns) * scale


def _norm(bits: np.random.Philox, size: int) -> np.ndarray:
    return np.float32(1.0) + np.float32(0.5) * _uniform(bits, size)


def _uniform(bits: np.random.Philox, count: int) -> np.ndarray:
    """Return float32 in [-1, 1) from the top 24 bits of raw draws: exact, and numpy never changes the raw stream."""
    raw = bits.random_raw(count)
    return (raw >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)
