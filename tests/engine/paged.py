"""A paged cache of shuffled pages, which holds NaN wherever nothing was written.

`T` packed tokens, `P` page size. A request is a row of the table, from 1 on.
"""

import torch

from draftproof.engine.cache import PagedCache
from draftproof.engine.models.base import AttentionMetadata, CacheShape

PAGE = 4
_REQUESTS = 4


def paged(shape: CacheShape, longest: int) -> PagedCache:
    """Room for requests 1 .. 3 of up to `longest` tokens; page 0 belongs to nobody."""
    columns = -(-longest // PAGE)
    pages = torch.randperm(_REQUESTS * columns, generator=torch.Generator().manual_seed(4)) + 1

    def pools(size: int) -> tuple[torch.Tensor, ...]:
        slots = (len(pages) + 1) * PAGE
        entry = (slots, shape.kv_heads, size)
        return tuple(torch.full(entry, torch.nan, dtype=shape.dtype) for _ in range(shape.layers))

    return PagedCache(pools(shape.key_dim), pools(shape.value_dim), pages.view(_REQUESTS, columns), PAGE)


def place(
    cache: PagedCache, rows: list[int], positions: list[int], visible: list[int] | None = None
) -> AttentionMetadata:
    """One token each at these rows and positions, with the slots of their pages."""
    row, position = torch.tensor(rows), torch.tensor(positions)
    slots = cache.page_table[row, position // PAGE] * PAGE + position % PAGE
    return AttentionMetadata(row, position, slots, None, None if visible is None else torch.tensor(visible))


def kept(cache: PagedCache, layer: int, row: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of positions 0 .. count - 1 of a request: [count, N, Hk] and [count, N, Hv]."""
    slots = place(cache, [row] * count, list(range(count))).slot_mapping
    return cache.keys[layer][slots], cache.values[layer][slots]
