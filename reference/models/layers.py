"""The parts of decoder layers, in float64, straight from the definitions.

Shapes: `n` tokens of one sequence from position zero, `D` hidden size, `Nq` query heads, `N` key-value heads, `H` head
size, `F` intermediate size, `V` vocabulary. Everything is float64, except the rotary frequencies (see
`rope_frequencies`).
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from draftproof.properties.formats.checkpoint_config.base import Llama3RopeParameters, RopeParameters
from draftproof.reference.models.tensors import Shapes

KV = tuple[Tensor, Tensor]


class Places(NamedTuple):
    """Rows of a pass that do not stand at positions 0, 1, .. (S-AUDIT-5).

    Their positions [n]; `blank` [n] rows leave no entry, and a zero is read there; `unseen` [n] rows leave an entry
    that no row sees, not even the row itself.
    """

    positions: Tensor
    blank: Tensor
    unseen: Tensor | None = None

    def written(self, entries: Tensor) -> Tensor:
        """Return keys or values [n, N, H] as they are read."""
        return entries.masked_fill(self.blank[:, None, None], 0.0)


class EntryStore(Protocol):
    """A memory that keeps entries otherwise than they are computed."""

    def kept(self, k: Tensor, v: Tensor) -> KV:
        """Return keys and values [n, N, H] of the next layer as they are read."""
        ...


def look_up(table: Tensor, tokens: Sequence[int]) -> Tensor:
    """Rows of an embedding [V, D]: [n, D]. Raises ValueError for no tokens or a token outside the vocabulary."""
    if not tokens:
        raise ValueError("tokens is empty; at least one token is needed")
    bad = [token for token in tokens if not 0 <= token < table.shape[0]]
    if bad:
        raise ValueError(f"token {bad[0]} is outside the vocabulary: expected 0 .. {table.shape[0] - 1}")
    return table[torch.tensor(tokens, dtype=torch.int64)]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


@lru_cache(maxsize=64)
def rope_frequencies(rope: RopeParameters, head_dim: int) -> Tensor:
    """Return the angle per token of each of the H/2 pairs, float64 [H/2].

    The frequencies are by definition the float32 values that every implementation computes; the product with the
    position is taken in the dtype of what is turned. Hence the same float32 operations in the same order as
    transformers' (5.23, `compute_default_rope_parameters` and `_compute_llama3_parameters`): another order rounds
    differently.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / (rope.rope_theta**exponents)
    if isinstance(rope, Llama3RopeParameters):
        frequencies = _llama3_scaled(frequencies, rope)
    return frequencies.to(torch.float64)


def _llama3_scaled(frequencies: Tensor, scaling: Llama3RopeParameters) -> Tensor:
    """Long wavelengths are slowed by `factor`, short ones kept, those between interpolated (float32)."""
    wavelength = 2 * math.pi / frequencies
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    original = scaling.original_max_position_embeddings
    smooth = (original / wavelength - low) / (high - low)
    between = (1 - smooth) * frequencies / scaling.factor + smooth * frequencies
    is_long = wavelength > original / low
    is_short = wavelength < original / high
    return torch.where(is_long, frequencies / scaling.factor, torch.where(is_short, frequencies, between))


def rotate(x: Tensor, frequencies: Tensor, first: int = 0) -> Tensor:
    """Turn x [n, N, H] at positions p = first, .. by p * frequency in each plane (component j, component j + H/2)."""
    return rotate_at(x, frequencies, torch.arange(x.shape[0]) + first)


def rotate_at(x: Tensor, frequencies: Tensor, positions: Tensor) -> Tensor:
    """Turn x [n, N, H] at positions [n]."""
    return _turned(x, *_turns(frequencies, positions, x.dtype))


def _turns(frequencies: Tensor, positions: Tensor, dtype: torch.dtype) -> KV:
    """Return cosine and sine of every angle [n, 1, H/2]."""
    angle = (positions.to(dtype)[:, None] * frequencies.to(dtype))[:, None, :]
    return torch.cos(angle), torch.sin(angle)


@lru_cache(maxsize=256)
def _first_turns(rope: RopeParameters, size: int, count: int, dtype: torch.dtype) -> KV:
    """Return them of positions 0, 1, .., which are the same in every layer of every pass."""
    return _turns(rope_frequencies(rope, size), torch.arange(count), dtype)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def rotate_first(x: Tensor, rope: RopeParameters, size: int, places: Places | None = None) -> Tensor:
    """Turn the first `size` components of each head of x [n, N, H], as if they were a head of that size."""
    turned = (
        _turned(x[..., :size], *_first_turns(rope, size, x.shape[0], x.dtype))
        if places is None
        else rotate_at(x[..., :size], rope_frequencies(rope, size), places.positions)
    )
    return torch.cat((turned, x[..., size:]), dim=-1)


def attend_causally(q: Tensor, k: Tensor, v: Tensor, places: Places | None = None) -> Tensor:
    """Grouped-query attention of q [n, Nq, H] over k, v [n, N, H], where a row sees what is up to itself: [n, NqH]."""
    future = torch.ones(len(q), len(q), dtype=torch.bool).triu(1)
    if places is not None:
        k, v = places.written(k), places.written(v)
        future = future if places.unseen is None else future | places.unseen
    return attend_all(q, k, v, future)


def attend_all(q: Tensor, k: Tensor, v: Tensor, hidden_from: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(H)) v, where row i does not see the rows that `hidden_from` [n, m] marks: [n, NqH]."""
    group, outputs = q.shape[1] // k.shape[1], []
    for i in range(q.shape[1]):
        scores = (q[:, i] @ k[:, i // group].T / math.sqrt(q.shape[-1])).masked_fill(hidden_from, -math.inf)
        outputs.append(torch.softmax(scores, dim=-1) @ v[:, i // group])
    return torch.cat(outputs, dim=-1)


def mlp(x: Tensor, weights: Mapping[str, Tensor], prefix: str = "mlp.") -> Tensor:
    """down(silu(gate(x)) * up(x)) for x [n, D]; the weights' names start with `prefix`."""
    gate = x @ weights[f"{prefix}gate_proj.weight"].T
    up = x @ weights[f"{prefix}up_proj.weight"].T
    return (silu(gate) * up) @ weights[f"{prefix}down_proj.weight"].T


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return x * torch.sigmoid(x)


def with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose name starts with `prefix`, by the rest of their name."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def mlp_shapes(prefix: str, inner: int, hidden_size: int) -> Shapes:
    """Return the shapes of an MLP's matrices."""
    shapes = {"gate": (inner, hidden_size), "up": (inner, hidden_size), "down": (hidden_size, inner)}
    return {f"{prefix}{name}_proj.weight": shape for name, shape in shapes.items()}


def norm_shapes(hidden_size: int) -> Shapes:
    """Return the shapes of a layer's two norms."""
    return {"input_layernorm.weight": (hidden_size,), "post_attention_layernorm.weight": (hidden_size,)}
