"""Calls of the ops on the KV cache.

`T` tokens, `S` pool slots, `N` KV heads, `G` query heads per KV head, `H` head size.
"""

from hypothesis import strategies as st

from draftproof.properties.kernels.buffers import (
    INDEX_POISONS,
    RING_AND_FLOATS,
    WILD,
    Draw,
    Dtypes,
    distinct,
    given,
    index,
    owned,
    unwritten,
)
from draftproof.properties.kernels.case import KernelCase


@st.composite
def kv_write(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS) -> KernelCase:
    """Draw unique slots, several rows to slot 0, slots that do not exist; room for a pool at the other's strides."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, heads, k_width, v_width, extra = distinct(draw, 5)
    size = tokens + extra
    free = draw(st.permutations(range(1, size)))
    wild = st.sampled_from((*WILD, size, 0))
    slots = [draw(st.one_of(st.just(slot), st.just(slot), wild)) for slot in free[:tokens]]
    slots += [draw(wild) for _ in range(tokens - len(slots))]
    return KernelCase(
        "kv_write",
        {
            "k_pool": given(draw, (size, heads, k_width), dtype, 9 * size),
            "v_pool": given(draw, (size, heads, v_width), dtype, 9 * size),
            "k": given(draw, (tokens, heads, k_width), dtype),
            "v": given(draw, (tokens, heads, v_width), dtype),
            "slot_mapping": index(draw, slots),
        },
    )


@st.composite
def kv_move(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS) -> KernelCase:
    """Draw sources and targets that overlap, and rows where either does not exist."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, heads, k_width, v_width, extra = distinct(draw, 5)
    size = tokens + extra
    wild = st.sampled_from((*WILD, size))
    targets = [draw(st.one_of(st.just(t), st.just(t), wild)) for t in draw(st.permutations(range(size)))[:tokens]]
    sources = [draw(st.one_of(st.integers(0, size - 1), st.integers(0, size - 1), wild)) for _ in range(tokens)]
    return KernelCase(
        "kv_move",
        {
            "k_pool": given(draw, (size, heads, k_width), dtype),
            "v_pool": given(draw, (size, heads, v_width), dtype),
            "src": index(draw, sources),
            "dst": index(draw, targets),
        },
    )


@st.composite
def paged_attention(
    draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, most_pages: int = 24, large: bool = False
) -> KernelCase:
    """Draw requests of different lengths on scattered pages, with stale entries beyond a length, holes, unknown rows.

    Large: few of them, with more than 512 positions.
    """
    dtype = draw(st.sampled_from(dtypes))
    tokens, heads, group, k_width, v_width, requests, page_size = distinct(draw, 7)
    pages = draw(st.integers(1, most_pages))
    if large:
        tokens, heads, group, requests, pages = 3, 1, 2, 2, 512 // page_size + draw(st.integers(1, 40))
    lengths = [draw(st.integers(0, pages * page_size)) for _ in range(requests)]
    table, live, size = _tables(draw, lengths, pages, page_size)
    rows, positions = [], []
    for _ in range(tokens):
        row = draw(st.integers(0, requests - 1))
        full = lengths[row] == pages * page_size
        # Only a full row may be asked for more than it holds: elsewhere that is memory nobody wrote.
        positions.append(draw(st.integers(-1, lengths[row] - 1 + (3 if full else 0))))
        rows.append(draw(st.sampled_from((row, row, row, -1, requests, 1 << 40))))
    pools = [owned(draw, (size, heads, width), live, dtype) for width in (k_width, v_width)]
    return KernelCase(
        "paged_attention",
        {
            "out": unwritten(draw, (tokens, heads * group, v_width), dtype),
            "q": given(draw, (tokens, heads * group, k_width), dtype),
            "k_pool": pools[0],
            "v_pool": pools[1],
            "page_table": index(draw, table),
            "req_rows": index(draw, rows),
            "positions": index(draw, positions),
            "page_size": page_size,
            "scale": draw(st.sampled_from((1.0, 0.375, 0.125))),
        },
    )


def _tables(draw: Draw, lengths: list[int], pages: int, page_size: int) -> tuple[list[list[int]], list[int], int]:
    """Return table, slots that hold values, and the pool's size; the last page may be cut short by the pool's end."""
    needed = [-(-length // page_size) for length in lengths]
    free = iter(draw(st.permutations(range(1, sum(needed) + 2))))
    table, live = [], []
    size = (sum(needed) + 2) * page_size - draw(st.integers(0, page_size - 1))
    for count, length in zip(needed, lengths, strict=True):
        own = [next(free) for _ in range(count)]
        live += [own[p // page_size] * page_size + p % page_size for p in range(length)]
        holes = [draw(st.sampled_from((page, page, page, page, page, *WILD, size))) for page in own]
        table.append(holes + [draw(st.sampled_from((*WILD, *INDEX_POISONS))) for _ in range(pages - count)])
    return table, [slot for slot in live if slot < size], size
