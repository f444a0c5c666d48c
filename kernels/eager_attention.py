"""Eager paged attention. `T` packed tokens, `S` pool slots, `N` KV heads, `G` query heads per KV head, `C` context.

`P` is the page size; K and V may have different head sizes Hk and Hv.
"""

import numpy as np
import torch

from draftproof.kernels.arrays import wide
from draftproof.kernels.eager_ring import mix_in_place

# Gathered KV elements held at once: larger calls run in pieces of whole tokens.
_PIECE = 1 << 22


def paged_attention(
    out: torch.Tensor,
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    table: torch.Tensor,
    rows: torch.Tensor,
    positions: torch.Tensor,
    page_size: int,
    scale: float,
) -> None:
    """Token t of q [T,N*G,Hk] attends to positions 0..positions[t] of request rows[t]; out is [T,N*G,Hv].

    The slot of position p is table[row, p // P] * P + p % P in the pools [S,N,H]. What the table does not hold, an
    entry or slot out of range, contributes nothing; a token that sees nothing gets zeros. Floats: softmax of
    scale * q.k. Ring (int64): the sum of (mix(q.k) | 1) * v modulo 2^64; scale is unused.
    """
    place = positions.numpy()
    length = min(int(place.max(initial=-1)) + 1, table.shape[1] * page_size)
    if length <= 0:
        out.zero_()
        return
    attend = _ring if out.dtype == torch.int64 else _softmax
    entry = k_pool.shape[1] * (k_pool.shape[2] + v_pool.shape[2])
    step = max(1, _PIECE // (length * entry))
    for start in range(0, len(place), step):
        piece = slice(start, start + step)
        seen = _visible(table.numpy(), rows.numpy()[piece], place[piece], page_size, length, k_pool.shape[0])
        attend(out[piece], q[piece], k_pool, v_pool, *seen, scale)


def _visible(
    table: np.ndarray, rows: np.ndarray, positions: np.ndarray, page_size: int, length: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return slots [T,C] and which of them are seen [T,C]; a slot that is not seen is 0."""
    context = np.arange(length)
    known = rows.view(np.uint64) < table.shape[0]
    rows = np.where(known, rows, 0)
    if page_size == 1:
        slots = table[rows, :length]
        seen = slots.view(np.uint64) < size
    else:
        page, within = np.divmod(context, page_size)
        entries = table[rows[:, None], page]
        slots = entries * page_size + within
        # The bound on the entry comes first: a huge one times the page size wraps round into the pool.
        seen = (entries.view(np.uint64) <= (size - 1) // page_size) & (slots < size)
    seen &= context <= positions[:, None]
    seen &= known[:, None]
    return slots * seen, seen


def _gather(pool: torch.Tensor, slots: np.ndarray) -> np.ndarray:
    """Return pool [S,N,H] at slots [T,C]; take is several times faster, but copies a pool that is not contiguous."""
    entries = pool.numpy()
    return entries.take(slots, axis=0) if entries.flags.c_contiguous else entries[slots]


def _ring(
    out: torch.Tensor,
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    slots: np.ndarray,
    seen: np.ndarray,
    scale: float,
) -> None:
    tokens, heads, size = q.shape
    grouped = q.numpy().reshape(tokens, k_pool.shape[1], heads // k_pool.shape[1], size)
    scores = np.matmul(grouped, _gather(k_pool, slots).transpose(0, 2, 3, 1))
    weights = mix_in_place(scores.view(np.uint64)).view(np.int64)
    weights |= 1
    weights *= seen[:, None, None, :]
    sums = np.matmul(weights, _gather(v_pool, slots).transpose(0, 2, 1, 3))
    out.numpy()[...] = sums.reshape(out.shape)


def _softmax(
    out: torch.Tensor,
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    slots: np.ndarray,
    seen: np.ndarray,
    scale: float,
) -> None:
    tokens, heads, size = q.shape
    index, dtype = torch.from_numpy(slots), wide(out.dtype)
    hidden = torch.from_numpy(~seen)
    grouped = q.reshape(tokens, k_pool.shape[1], heads // k_pool.shape[1], size).to(dtype)
    keys = k_pool[index].to(dtype).permute(0, 2, 3, 1)
    scores = torch.matmul(grouped, keys).mul_(scale).masked_fill_(hidden[:, None, None, :], -torch.inf)
    # A token that sees nothing has only -inf: 0/0 becomes 0. Hidden values may be NaN, which a weight of 0 would keep.
    weights = torch.softmax(scores, -1).nan_to_num_(0.0) if hidden.all(-1).any() else torch.softmax(scores, -1)
    values = v_pool[index].to(dtype).masked_fill_(hidden[:, :, None, None], 0.0).transpose(1, 2)
    out.copy_(torch.matmul(weights, values).reshape(out.shape))
