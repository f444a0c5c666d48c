"""Eager paged attention.

`T` packed tokens, `S` pool slots, `N` KV heads, `G` query heads per KV head, `J` positions of the longest context, `P`
page size. K and V may have different head sizes Hk and Hv.
"""

import numpy as np
import torch
from torch import Tensor

from draftproof.kernels.arrays import wide
from draftproof.kernels.eager_codes import read_back_on_host
from draftproof.kernels.eager_fp8 import decoded
from draftproof.kernels.eager_ring import mix_in_place
from draftproof.kernels.registry import register

# Gathered KV elements held at once: larger calls run in pieces of whole tokens.
_PIECE = 1 << 18


@register("out")
def paged_attention(
    out: Tensor, q: Tensor, k_pool: Tensor, v_pool: Tensor, page_table: Tensor, req_rows: Tensor, positions: Tensor,
    page_size: int, scale: float,
) -> None:  # fmt: skip
    """Let token t of q [T,N*G,Hk] attend to positions 0..positions[t] of row req_rows[t]; out is [T,N*G,Hv].

    The slot of position p is page_table[row, p // P] * P + p % P in the pools [S,N,H]. What the table does not
    hold, an entry or slot out of range, contributes nothing; a token that sees nothing gets zeros. Floats: softmax of
    scale * q.k. Ring (int64): the sum of (mix(q.k) | 1) * v modulo 2^64; scale is unused.
    """
    _attend(out, q, (k_pool, v_pool), page_table, req_rows, None, positions, page_size, scale)


@register("out")
def windowed_attention(
    out: Tensor, q: Tensor, k_pool: Tensor, v_pool: Tensor, page_table: Tensor, req_rows: Tensor, first: Tensor,
    positions: Tensor, page_size: int, scale: float,
) -> None:  # fmt: skip
    """Let token t of q [T,N*G,Hk] attend to positions first[t]..positions[t] alone, else as `paged_attention` does.

    A first position below 0 is 0.
    """
    _attend(out, q, (k_pool, v_pool), page_table, req_rows, first, positions, page_size, scale)


@register("out")
def quantised_attention(
    out: Tensor, q: Tensor, k_pool: Tensor, v_pool: Tensor, k_scales: Tensor, v_scales: Tensor, page_table: Tensor,
    req_rows: Tensor, first: Tensor, positions: Tensor, page_size: int, scale: float,
) -> None:  # fmt: skip
    """Attend as `windowed_attention` does, to what the codes of the pools [S,N,H] and their scales [S,N] stand for."""
    pools = (read_back_on_host(k_pool, k_scales), read_back_on_host(v_pool, v_scales))
    _attend(out, q, pools, page_table, req_rows, first, positions, page_size, scale)


@register("out")
def fp8_attention(
    out: Tensor, q: Tensor, k_pool: Tensor, v_pool: Tensor, page_table: Tensor, req_rows: Tensor, first: Tensor,
    positions: Tensor, page_size: int, scale: float, k_scale: float, v_scale: float,
) -> None:  # fmt: skip
    """Attend as `windowed_attention` does, to the numbers of e4m3fn in the pools [S,N,H] times their scales."""
    dtype = wide(out.dtype)
    pools = (decoded(k_pool, dtype) * k_scale, decoded(v_pool, dtype) * v_scale)
    _attend(out, q, pools, page_table, req_rows, first, positions, page_size, scale)


def _attend(
    out: Tensor, q: Tensor, pools: tuple[Tensor, Tensor], page_table: Tensor, req_rows: Tensor, first: Tensor | None,
    positions: Tensor, page_size: int, scale: float,
) -> None:  # fmt: skip
    k_pool, v_pool = pools
    place, size = positions.numpy(), k_pool.shape[0]
    length = min(int(place.max(initial=-1)) + 1, page_table.shape[1] * page_size)
    if length <= 0:
        out.zero_()
        return
    attend = _ring if out.dtype == torch.int64 else _softmax
    slots, seen = _visible(page_table.numpy(), req_rows.numpy(), place, page_size, length, size)
    if first is not None:
        seen &= np.arange(length) >= first.numpy()[:, None]
        slots = slots * seen
    step = max(1, _PIECE // (length * k_pool.shape[1] * (k_pool.shape[2] + v_pool.shape[2])))
    if len(place) <= step:
        attend(out, q, k_pool, v_pool, slots, seen, scale)
        return
    for start in range(0, len(place), step):
        piece = slice(start, start + step)
        attend(out[piece], q[piece], k_pool, v_pool, slots[piece], seen[piece], scale)


def _visible(
    page_table: np.ndarray, req_rows: np.ndarray, positions: np.ndarray, page_size: int, length: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return slots [T,J] and which of them are seen [T,J]; a slot that is not seen is 0."""
    known = req_rows.view(np.uint64) < page_table.shape[0]
    if not known.all():
        req_rows, positions = np.where(known, req_rows, 0), np.where(known, positions, -1)
    slots = page_table[req_rows, : -(-length // page_size)]
    if page_size > 1:
        # An entry out of range goes first: a huge one times the page size would wrap round into the pool.
        entries = np.where(slots.view(np.uint64) < size, slots, size)
        slots = (entries[:, :, None] * page_size + np.arange(page_size)).reshape(len(req_rows), -1)[:, :length]
    seen = slots.view(np.uint64) < size
    seen &= np.arange(length) <= positions[:, None]
    return slots * seen, seen


def _gather(entries: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Return entries [S,N,H] at slots [T,J]; take is several times faster, but copies what is not contiguous."""
    return entries.take(slots, axis=0) if entries.flags.c_contiguous else entries[slots]


def _ring(
    out: Tensor, q: Tensor, k_pool: Tensor, v_pool: Tensor, slots: np.ndarray, seen: np.ndarray, scale: float
) -> None:
    queries, keys, result = q.numpy(), k_pool.numpy(), out.numpy()
    tokens, heads, width = queries.shape
    grouped = queries.reshape(tokens, keys.shape[1], heads // keys.shape[1], width)
    scores = np.matmul(grouped, _gather(keys, slots).transpose(0, 2, 3, 1))
    weights = mix_in_place(scores.view(np.uint64)).view(np.int64)
    weights |= 1
    weights *= seen[:, None, None, :]
    sums = np.matmul(weights, _gather(v_pool.numpy(), slots).transpose(0, 2, 1, 3))
    result[...] = sums.reshape(result.shape)


def _softmax(
    out: Tensor, q: Tensor, k_pool: Tensor, v_pool: Tensor, slots: np.ndarray, seen: np.ndarray, scale: float
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
