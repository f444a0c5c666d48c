"""Eager arithmetic of a linear attention layer: convolution, gates, delta rule; on numpy arrays, floats or the ring.

`B` rows of a launch, `W` tokens a row, `N` key heads, `U` value heads (value head u uses key head u // (U / N)), `H`
key size, `E` value size, `C` conv width, `Q` channels, 2*N*H + U*E: all queries, then all keys, then all values.
Rows of different length run together: a shorter one runs its last token again, and that is thrown away.
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from draftproof.kernels.arrays import wide
from draftproof.kernels.eager_ring import mix_in_place

_NORM_EPS = 1e-6
_SOFTPLUS_LINEAR_ABOVE = 20


def numbers(held: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Return values of `dtype`, held as `arrays.words` has them, in the dtype of arithmetic."""
    if dtype in (torch.int64, torch.float32, torch.float64):
        return held
    return torch.from_numpy(held).view(dtype).to(wide(dtype)).numpy()


def rounded(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Return values rounded to `dtype`, held as `arrays.words` has them."""
    if dtype in (torch.int64, torch.float32, torch.float64):
        return values
    narrow = torch.from_numpy(values).to(dtype)
    return narrow.view(torch.int16).numpy() if dtype == torch.bfloat16 else narrow.numpy()


def mixed(values: np.ndarray) -> np.ndarray:
    """Mix a fresh int64 array in place and return it."""
    return mix_in_place(values.view(np.uint64)).view(np.int64)


@lru_cache(maxsize=256)
def spans(count: int, width: int) -> np.ndarray:
    """Return the places [W,C] of the inputs of each token's convolution among window and tokens."""
    return np.arange(count)[:, None] + np.arange(width)


def rows_above(parents: Tensor) -> np.ndarray:
    """Return the row that each row of trees goes on from [B,W], -1 for none, of the parents [B,W-1] of rows 1 ..

    A parent that is no row before it is none.
    """
    named = parents.numpy()
    known = np.where((named >= 0) & (named <= np.arange(named.shape[1])), named, -1)
    return np.concatenate((np.full((len(named), 1), -1), known), 1)


def tree_spans(above: np.ndarray, width: int) -> np.ndarray:
    """Return the places [B,W,C] of the inputs of each token's convolution, as `spans`, where tokens go on from others.

    above [B,W] names these, -1 for the window.
    """
    count, tokens = above.shape
    line, window = np.arange(count), np.arange(width - 1)
    places = np.zeros((count, tokens, width), dtype=np.int64)
    places[:, :, -1] = width - 1 + np.arange(tokens)
    for t in range(tokens):
        row = above[:, t]
        places[:, t, :-1] = np.where(row[:, None] < 0, window, places[line, row, 1:])
    return places


def near_inputs(held: np.ndarray, width: int, above: np.ndarray | None) -> np.ndarray:
    """Return the inputs [B,W,C,Q] of each token's convolution, of held [B,C-1+W,Q], which begins with the window."""
    if above is None:
        return held[:, spans(held.shape[1] - width + 1, width)]
    return held[np.arange(len(held))[:, None, None], tree_spans(above, width)]


def convolve(near: np.ndarray, weight: Tensor) -> np.ndarray:
    """Return the convolution [B,W,Q] of inputs near [B,W,C,Q], held as words in the dtype of weight [Q,C], likewise."""
    dtype = weight.dtype
    if dtype == torch.int64:
        return mixed(np.einsum("bwcd,dc->bwd", near, weight.numpy()))
    kernel = weight.to(wide(dtype)).numpy()
    sums = np.einsum("bwcd,dc->bwd", numbers(near, dtype), kernel)
    return rounded(sums * _sigmoid(sums), dtype)


def decay_and_beta(
    a: np.ndarray, b: np.ndarray, dtype: torch.dtype, a_log: Tensor, dt_bias: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Return decay and beta [B,W,U] of raw gates a and b, held as words of `dtype`; a_log and dt_bias are [U]."""
    if dtype == torch.int64:
        both = np.empty((2, *a.shape), dtype=np.int64)
        np.multiply(a_log.numpy(), a + dt_bias.numpy(), out=both[0])
        both[1] = b
        mixed(both)
        both |= 1
        return both[0], both[1]
    shifted = numbers(a, dtype) + dt_bias.numpy()
    with np.errstate(over="ignore"):
        step = np.where(shifted > _SOFTPLUS_LINEAR_ABOVE, shifted, np.log1p(np.exp(shifted)))
    return np.exp(-np.exp(a_log.numpy()) * step), _sigmoid(numbers(b, dtype))


def delta(
    state: np.ndarray,
    qkv: np.ndarray,
    dtype: torch.dtype,
    decay: np.ndarray,
    beta: np.ndarray,
    above: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs [B,W,U,E] and the states after each token [B,W,U,H,E], both in the dtype of arithmetic.

    state [B,U,H,E] comes before the first token; qkv [B,W,Q] is held as words of `dtype`; decay and beta are [B,W,U].
    A token goes on from the one before it, or from the one that above [B,W] names (-1: from state).
    """
    rows, tokens, channels = qkv.shape
    heads, size, width = state.shape[1:]
    keys = (channels - heads * width) // 2
    grouped = (rows, tokens, keys // size, heads * size // keys)
    values = numbers(qkv, dtype)
    q = values[..., :keys].reshape(*grouped[:3], 1, size)
    k = values[..., keys : 2 * keys].reshape(*grouped[:3], 1, size)
    v = values[..., 2 * keys :].reshape(*grouped, width)
    start = state.reshape(rows, *grouped[2:], size, width)
    decay, beta = decay.reshape(*grouped, 1), beta.reshape(*grouped, 1)
    if dtype == torch.int64:
        states = _ring_states(start, k, v, decay, beta, above)
        outputs = np.matmul(q[..., None, :], states)
    else:
        q, k = _unit(q) * size**-0.5, _unit(k)
        states = _float_states(start, k, v, decay, beta, above)
        outputs = np.matmul(q[..., None, :], states)
    return outputs.reshape(rows, tokens, heads, width), states.reshape(rows, tokens, heads, size, width)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x)).

    torch rounds the last few elements of a tensor otherwise than the rest, so that a row would depend on how many
    tokens others have pending, padding among them.
    """
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.square(x).sum(-1, keepdims=True) + x.dtype.type(_NORM_EPS))


@lru_cache(maxsize=16)
def _identity(size: int) -> np.ndarray:
    return np.eye(size, dtype=np.int64)


def _before(start: np.ndarray, states: np.ndarray, t: int, above: np.ndarray | None) -> np.ndarray:
    """Return the states that token t goes on from."""
    if above is None:
        return states[:, t - 1] if t else start
    row = above[:, t]
    return np.where((row < 0).reshape(-1, *[1] * (start.ndim - 1)), start, states[np.arange(len(row)), row])


def _ring_states(
    start: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    decay: np.ndarray,
    beta: np.ndarray,
    above: np.ndarray | None,
) -> np.ndarray:
    """One matrix a token: S = (decay - decay beta k k^T) S + k (beta v)^T, the same in a ring, in two calls a token."""
    column = k[..., None]
    turn = _identity(k.shape[-1]) - beta[..., None] * (column * k[..., None, :])
    turn *= decay[..., None]
    states = column * (beta * v)[..., None, :]
    for t in range(states.shape[1]):
        after = states[:, t]
        after += np.matmul(turn[:, t], _before(start, states, t, above))
    return states


def _float_states(
    start: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    decay: np.ndarray,
    beta: np.ndarray,
    above: np.ndarray | None,
) -> np.ndarray:
    states = np.empty((*v.shape[:4], *start.shape[3:]), dtype=start.dtype)
    for t in range(states.shape[1]):
        after, key = states[:, t], k[:, t, ..., None]
        np.multiply(_before(start, states, t, above), decay[:, t, ..., None], out=after)
        held = np.matmul(k[:, t, ..., None, :], after)[..., 0, :]
        after += key * (beta[:, t] * (v[:, t] - held))[..., None, :]
    return states
