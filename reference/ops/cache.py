"""Naive twins of the ops on the KV cache. `T` tokens, `S` pool slots, `N` KV heads, `H` head size."""

import math

import torch
from torch import Tensor

from draftproof.reference.ops.arithmetic import MODULUS, mix, products, signed


def kv_write(k_pool: Tensor, v_pool: Tensor, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
    """Write each row to its slot in [S,N,H]; a slot that does not exist is skipped."""
    for t, slot in enumerate(slot_mapping.tolist()):
        if 0 <= slot < k_pool.shape[0]:
            k_pool[slot] = k[t]
            v_pool[slot] = v[t]


def quantised_write(
    k_pool: Tensor, v_pool: Tensor, k_scales: Tensor, v_scales: Tensor, k: Tensor, v: Tensor, slot_mapping: Tensor
) -> None:
    """Write each row as its first number and the top bits of all others; a slot that does not exist is skipped."""
    for t, slot in enumerate(slot_mapping.tolist()):
        if not 0 <= slot < k_pool.shape[0]:
            continue
        for pool, scales, row in ((k_pool, k_scales, k[t]), (v_pool, v_scales, v[t])):
            unit = 1 << (64 - 8 * pool.element_size())
            for head, numbers in enumerate(row.tolist()):
                scales[slot, head] = numbers[0]
                for place, number in enumerate(numbers):
                    pool[slot, head, place] = number // unit if place else 0


def quantised_attention(
    out: Tensor,
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    k_scales: Tensor,
    v_scales: Tensor,
    page_table: Tensor,
    req_rows: Tensor,
    first: Tensor,
    positions: Tensor,
    page_size: int,
    scale: float,
) -> None:
    """Attend to the pools that codes and scales stand for."""
    pools = (_read_back(k_pool, k_scales), _read_back(v_pool, v_scales))
    windowed_attention(out, q, *pools, page_table, req_rows, first, positions, page_size, scale)


def _read_back(pool: Tensor, scales: Tensor) -> Tensor:
    """Return the numbers of each entry: its scale, then that made odd, times the odd number of each code."""
    numbers, entries = torch.empty(pool.shape, dtype=torch.int64), pool.tolist()
    for slot, heads in enumerate(scales.tolist()):
        for head, scale in enumerate(heads):
            codes = entries[slot][head]
            read = [scale if not place else (scale | 1) * (2 * code + 1) for place, code in enumerate(codes)]
            numbers[slot, head] = torch.tensor([signed(number % MODULUS) for number in read])
    return numbers


def kv_move(k_pool: Tensor, v_pool: Tensor, src: Tensor, dst: Tensor) -> None:
    """Set pool[dst] = pool[src] as the pools [S,N,H] were before; an index that does not exist is skipped."""
    size = k_pool.shape[0]
    for pool in (k_pool, v_pool):
        before = pool.clone()
        for source, target in zip(src.tolist(), dst.tolist(), strict=True):
            if 0 <= source < size and 0 <= target < size:
                pool[target] = before[source]


def paged_attention(
    out: Tensor,
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    page_table: Tensor,
    req_rows: Tensor,
    positions: Tensor,
    page_size: int,
    scale: float,
) -> None:
    """Let each token attend to what its row's page table holds of positions 0 .. its own, weighted by `_attend`."""
    zeros = torch.zeros_like(positions)
    windowed_attention(out, q, k_pool, v_pool, page_table, req_rows, zeros, positions, page_size, scale)


def windowed_attention(
    out: Tensor,
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    page_table: Tensor,
    req_rows: Tensor,
    first: Tensor,
    positions: Tensor,
    page_size: int,
    scale: float,
) -> None:
    """Let each token attend to what its row's page table holds of its first position .. its own."""
    group = q.shape[1] // k_pool.shape[1]
    spans = zip(req_rows.tolist(), first.tolist(), positions.tolist(), strict=True)
    for t, (row, start, position) in enumerate(spans):
        slots = _visible_slots(page_table, row, start, position, page_size, k_pool.shape[0])
        entries = k_pool[slots].tolist(), v_pool[slots].tolist()
        for head in range(q.shape[1]):
            keys, values = ([heads[head // group] for heads in pool] for pool in entries)
            attend = _attend_ring if out.dtype == torch.int64 else _attend
            mixed = attend(q[t, head].tolist(), keys, values, scale, out.shape[2])
            out[t, head] = torch.tensor(mixed, dtype=torch.int64 if out.dtype == torch.int64 else torch.float64)


def _visible_slots(page_table: Tensor, row: int, start: int, position: int, page_size: int, size: int) -> list[int]:
    if not 0 <= row < page_table.shape[0]:
        return []
    entries = page_table[row].tolist()
    slots = []
    for p in range(max(start, 0), min(position + 1, len(entries) * page_size)):
        entry = entries[p // page_size]
        slot = entry * page_size + p % page_size
        if entry >= 0 and slot < size:
            slots.append(slot)
    return slots


def _attend(
    query: list[float], keys: list[list[float]], values: list[list[float]], scale: float, width: int
) -> list[float]:
    """Return values weighted by the softmax of scale * q.k, in float64."""
    if not keys:
        return [0.0] * width
    scores = [scale * math.fsum(products(query, key)) for key in keys]
    highest = max(scores)
    weights = [math.exp(score - highest) for score in scores]
    total = math.fsum(weights)
    return [math.fsum(products(weights, numbers)) / total for numbers in list(zip(*values, strict=True))[:width]]


def _attend_ring(
    query: list[int], keys: list[list[int]], values: list[list[int]], scale: float, width: int
) -> list[int]:
    """Return the sum of (mix(q.k) | 1) * v modulo 2^64: odd weights, since an even one would lose bits of v."""
    weights = [mix(sum(products(query, key)) % MODULUS) | 1 for key in keys]
    return [signed(sum(w * value[e] for w, value in zip(weights, values, strict=True))) for e in range(width)]
