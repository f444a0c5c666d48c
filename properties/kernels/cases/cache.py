"""Calls of the ops on the KV cache.

`T` tokens, `S` pool slots, `N` KV heads, `G` query heads per KV head, `H` head size.
"""

import torch
from hypothesis import strategies as st

from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import Arguments, Draw, calls, codes, floats, ring_and_floats
from draftproof.properties.strategies.examples import integers, sampled

# Most positions of a usual table, and head sizes of keys and values in large calls.
_POSITIONS = 216
_WIDE = ((40, 24), (24, 48), (33, 40))


@calls(ring_and_floats)
def kv_write(draw: Draw, dtype: torch.dtype) -> Arguments:
    """Draw unique slots, several rows to slot 0, slots that do not exist; room for a pool at the other's strides."""
    return _written(draw, dtype, dtype)


def _written(draw: Draw, dtype: torch.dtype, stored: torch.dtype) -> Arguments:
    tokens, heads, *widths, extra = bf.distinct(draw, 5)
    k_width, v_width = bf.alike(draw, *widths)
    size = tokens + extra
    free = draw(st.permutations(range(1, size)))
    wild = sampled((*bf.WILD, size, 0))
    slots = [draw(st.one_of(st.just(slot), st.just(slot), wild)) for slot in free[:tokens]]
    slots += [draw(wild) for _ in range(tokens - len(slots))]
    return {
        "k_pool": bf.given(draw, (size, heads, k_width), stored, 9 * size),
        "v_pool": bf.given(draw, (size, heads, v_width), stored, 9 * size),
        "k": bf.given(draw, (tokens, heads, k_width), dtype),
        "v": bf.given(draw, (tokens, heads, v_width), dtype),
        "slot_mapping": bf.index(draw, slots),
    }


@calls(ring_and_floats)
def kv_move(draw: Draw, dtype: torch.dtype, missing: bool = True) -> Arguments:
    """Draw sources and targets that overlap, and with `missing` rows where either does not exist."""
    tokens, heads, *widths, extra = bf.distinct(draw, 5)
    k_width, v_width = bf.alike(draw, *widths)
    size = tokens + extra
    wild = (sampled((*bf.WILD, size)),) if missing else ()
    targets = [draw(st.one_of(st.just(t), st.just(t), *wild)) for t in draw(st.permutations(range(size)))[:tokens]]
    sources = [draw(st.one_of(integers(0, size - 1), integers(0, size - 1), *wild)) for _ in range(tokens)]
    return {
        "k_pool": bf.given(draw, (size, heads, k_width), dtype),
        "v_pool": bf.given(draw, (size, heads, v_width), dtype),
        "src": bf.index(draw, sources),
        "dst": bf.index(draw, targets),
    }


@calls(ring_and_floats)
def paged_attention(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw requests of different lengths on scattered pages, with stale entries beyond a length, holes, unknown rows.

    Large: few of them, of which the first sees more than 512 positions, so many and wide that they run in pieces.
    """
    return _attention(draw, dtype, large)


@calls(ring_and_floats)
def windowed_attention(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw the calls of `paged_attention`, each token with a window: of one position, of some, beyond its own place."""
    return _windowed(draw, dtype, large)


def _windowed(draw: Draw, dtype: torch.dtype, large: bool) -> Arguments:
    arguments = _attention(draw, dtype, large)
    positions = arguments["positions"].tensor.tolist()  # type: ignore[union-attr]
    window = draw(integers(1, 24))
    first = [max(-3, place + 1 - draw(sampled((window, window, 1, 600, 0)))) for place in positions]
    names = list(arguments)
    arguments["first"] = bf.index(draw, first)
    order = (*names[: names.index("positions")], "first", *names[names.index("positions") :])
    return {name: arguments[name] for name in order}


@calls(codes)
def quantised_write(draw: Draw, dtype: torch.dtype) -> Arguments:
    """Draw the slots of `kv_write`, for codes of either width."""
    tokens, heads, *widths, extra = bf.distinct(draw, 5)
    k_width, v_width = bf.alike(draw, *widths)
    size = tokens + extra
    free = draw(st.permutations(range(1, size)))
    wild = sampled((*bf.WILD, size, 0))
    slots = [draw(st.one_of(st.just(slot), st.just(slot), wild)) for slot in free[:tokens]]
    slots += [draw(wild) for _ in range(tokens - len(slots))]
    return {
        "k_pool": bf.given(draw, (size, heads, k_width), dtype, 9 * size),
        "v_pool": bf.given(draw, (size, heads, v_width), dtype, 9 * size),
        "k_scales": bf.given(draw, (size, heads), torch.int64, 9 * size),
        "v_scales": bf.given(draw, (size, heads), torch.int64, 9 * size),
        "k": bf.given(draw, (tokens, heads, k_width), torch.int64),
        "v": bf.given(draw, (tokens, heads, v_width), torch.int64),
        "slot_mapping": bf.index(draw, slots),
    }


@calls(codes)
def quantised_attention(draw: Draw, dtype: torch.dtype) -> Arguments:
    """Draw the calls of `windowed_attention` in the ring, over codes and scales that all are somebody's."""
    arguments = _windowed(draw, torch.int64, False)
    made: Arguments = {}
    for name, value in arguments.items():
        if name in ("k_pool", "v_pool"):
            made[name] = bf.given(draw, value.tensor.shape, dtype)  # type: ignore[union-attr]
        else:
            made[name] = value
        if name == "v_pool":
            for pool in ("k", "v"):
                shape = arguments[f"{pool}_pool"].tensor.shape[:2]  # type: ignore[union-attr]
                made[f"{pool}_scales"] = bf.given(draw, shape, torch.int64)
    return made


# Scales of layers: powers of two, and others; with the small ones numbers are beyond what FP8 holds.
_FP8_SCALES = tuple(torch.tensor((1.0, 0.5, 0.3, 0.011, 0.004, 7.0), dtype=torch.float32).tolist())


@calls(floats)
def fp8_write(draw: Draw, dtype: torch.dtype) -> Arguments:
    """Draw the slots of `kv_write`; numbers that lie between two of FP8, on one, and beyond the largest."""
    arguments = _written(draw, dtype, torch.uint8)
    if draw(sampled((True, False))):
        # Half of them lie in the middle of two numbers of FP8, where scales are powers of two.
        for name in ("k", "v"):
            shape = arguments[name].tensor.shape  # type: ignore[union-attr]
            arguments[name] = bf.place(draw, bf.numbers(draw, shape, 64, -64).to(dtype) / 16)
    return {**arguments, "k_scale": draw(sampled(_FP8_SCALES)), "v_scale": draw(sampled(_FP8_SCALES))}


@calls(floats)
def fp8_attention(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw the calls of `windowed_attention`, over bytes that read back are as large as its numbers."""
    arguments = _windowed(draw, dtype, large)
    # Of few large calls the first has scales that show.
    scales = [draw(sampled((0.75, 0.25, 1.0, 3.0) if large else (1.0, 0.25, 0.75, 3.0))) for _ in range(2)]
    for name, scale in zip(("k_pool", "v_pool"), scales, strict=True):
        pool = arguments[name].tensor.float() / scale  # type: ignore[union-attr]
        # What nobody owns is NaN, or far beyond.
        codes = pool.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
        arguments[name] = bf.place(draw, codes)
    return {**arguments, "k_scale": scales[0], "v_scale": scales[1]}


def _attention(draw: Draw, dtype: torch.dtype, large: bool) -> Arguments:
    tokens, heads, group, *widths, requests, small = bf.distinct(draw, 7)
    page_size = bf.page_size(draw, small)
    pages = draw(integers(1, max(1, _POSITIONS // page_size)))
    if large:
        tokens, heads, group, requests, widths = 8, 1, 2, 2, list(draw(sampled(_WIDE)))
        pages = 512 // page_size + draw(integers(1, 1 + 80 // page_size))
    k_width, v_width = bf.alike(draw, *widths)
    lengths = [draw(integers(0, pages * page_size)) for _ in range(requests)]
    if large:
        lengths[0] = draw(integers(513, pages * page_size))
    table, live, size = tables(draw, lengths, pages, page_size)
    rows, positions = [], []
    if large:
        rows, positions = [0], [draw(integers(512, lengths[0] - 1))]
    for _ in range(tokens - len(rows)):
        row = draw(integers(0, requests - 1))
        full = lengths[row] == pages * page_size
        # Only a full row may be asked for more than it holds: elsewhere that is memory nobody wrote.
        positions.append(draw(integers(-1, lengths[row] - 1 + (3 if full else 0))))
        rows.append(draw(sampled((row, row, row, -1, requests, 1 << 40))))
    pools = [bf.owned(draw, (size, heads, width), live, dtype) for width in (k_width, v_width)]
    return {
        "out": bf.unwritten(draw, (tokens, heads * group, v_width), dtype),
        "q": bf.given(draw, (tokens, heads * group, k_width), dtype),
        "k_pool": pools[0],
        "v_pool": pools[1],
        "page_table": bf.index(draw, table),
        "req_rows": bf.index(draw, rows),
        "positions": bf.index(draw, positions),
        "page_size": page_size,
        "scale": draw(sampled((1.0, 0.375, 0.125))),
    }


def tables(draw: Draw, lengths: list[int], pages: int, page_size: int) -> tuple[list[list[int]], list[int], int]:
    """Return table, slots that hold values, and the pool's size; the last page may be cut short by the pool's end."""
    needed = [-(-length // page_size) for length in lengths]
    # Page 0 as well: an op knows of no scratch.
    free = iter(draw(st.permutations(range(sum(needed) + 2))))
    table, live = [], []
    size = (sum(needed) + 2) * page_size - draw(integers(0, page_size - 1))
    for count, length in zip(needed, lengths, strict=True):
        own = [next(free) for _ in range(count)]
        live += [own[p // page_size] * page_size + p % page_size for p in range(length)]
        holes = [draw(sampled((page, page, page, page, page, *bf.WILD, size))) for page in own]
        table.append(holes + [draw(sampled((*bf.WILD, *bf.INDEX_POISONS))) for _ in range(pages - count)])
    return table, [slot for slot in live if slot < size], size
