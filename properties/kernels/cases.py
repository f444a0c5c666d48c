"""Strategies for kernel cases, one per op: `CASES[op](dtypes)`.

Sizes are pairwise distinct, since many wrong strides hide behind sizes that are equal. Every tensor lies somewhere in a
larger allocation, its dimensions in any order, and what is around it is poison; so are pool slots that no request owns.
`T` tokens, `S` pool slots, `N` KV heads, `G` query heads per KV head, `H` head size, `P` page size, `R` rows.
"""

from collections.abc import Callable

import torch
from hypothesis import strategies as st

from draftproof.properties.kernels.buffers import (
    FLOATS,
    INDEX_POISONS,
    RING_AND_FLOATS,
    VALUE_POISONS,
    WILD,
    Arguments,
    Draw,
    Dtypes,
    distinct,
    given,
    index,
    owned,
    place,
    unwritten,
    values_of,
    wide,
)
from draftproof.properties.kernels.case import Buffer, KernelCase
from draftproof.properties.kernels.cases_state import STATE_CASES


@st.composite
def kv_write(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS) -> KernelCase:
    """Unique slots, several rows to slot 0, slots that do not exist; room for either pool at the other's strides."""
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
            "slots": index(draw, slots),
        },
    )


@st.composite
def kv_move(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS) -> KernelCase:
    """Sources and targets that overlap, and rows where either does not exist."""
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
    """Requests of different lengths on scattered pages; stale entries beyond a length; holes; unknown rows. Large: few
    of them, with more than 512 positions."""
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
            "table": index(draw, table),
            "rows": index(draw, rows),
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


@st.composite
def rms_norm(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """Rows of different size, with the weight's own stride; it may be of the wider dtype."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, width = distinct(draw, 2, 40)
    arguments: Arguments = {
        "out": unwritten(draw, (tokens, width), dtype),
        "x": given(draw, (tokens, width), dtype),
        "weight": given(draw, (width,), draw(st.sampled_from((dtype, wide(dtype))))),
        "eps": draw(st.sampled_from((1e-6, 1e-2))),
    }
    return KernelCase("rms_norm", arguments)


@st.composite
def add_rms_norm(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """As rms_norm, with a residual that is read and written."""
    case = draw(rms_norm(dtypes))
    out = case.buffers["out"]
    residual = given(draw, out.shape, out.storage.dtype)
    return KernelCase("add_rms_norm", {"out": out, "residual": residual, **dict(list(case.arguments.items())[1:])})


@st.composite
def silu_mul(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """Gate and up side by side."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, width = distinct(draw, 2, 40)
    arguments: Arguments = {
        "out": unwritten(draw, (tokens, width), dtype),
        "gate_up": given(draw, (tokens, 2 * width), dtype),
    }
    return KernelCase("silu_mul", arguments)


@st.composite
def rope(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """Positions up to 5000 and frequencies that fall from 1; heads may have components that are not turned."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, q_heads, k_heads, half = distinct(draw, 4)
    size = 2 * half + draw(st.sampled_from((0, 1, 2, 7)))
    frequencies = 1000.0 ** -(torch.arange(half, dtype=torch.float64) / half)
    arguments: Arguments = {
        "q": given(draw, (tokens, q_heads, size), dtype),
        "k": given(draw, (tokens, k_heads, size), dtype),
        "positions": index(draw, [draw(st.integers(0, 5000)) for _ in range(tokens)]),
        "inv_freq": place(draw, frequencies.float()),
    }
    return KernelCase("rope", arguments)


@st.composite
def assign_slots(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """Live, surplus and padding columns; pages that are missing; positions past the table; unknown rows."""
    del dtypes
    rows, width, requests, pages, page_size = distinct(draw, 5)
    capacity = pages * page_size
    entry = st.one_of(st.integers(0, 50), st.integers(0, 50), st.just(-1))
    arguments: Arguments = {
        "positions": unwritten(draw, (rows, width), torch.int64),
        "slots": unwritten(draw, (rows, width), torch.int64),
        "table": index(draw, [[draw(entry) for _ in range(pages)] for _ in range(requests)]),
        "rows": index(draw, [draw(st.integers(0, requests) | st.just(-1)) for _ in range(rows)]),
        "lengths": index(draw, [draw(st.integers(0, capacity)) for _ in range(rows)]),
        "counts": index(draw, [draw(st.integers(-1, width)) for _ in range(rows)]),
        "page_size": page_size,
        "max_len": draw(st.integers(1, capacity)),
    }
    return KernelCase("assign_slots", arguments)


@st.composite
def greedy_accept(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """Ids and choices from three tokens, so that runs of every length occur, beyond the count too."""
    del dtypes
    rows, width = distinct(draw, 2)
    choice = [[draw(st.integers(0, 2)) for _ in range(width)] for _ in range(rows)]
    ids = [[7] + [draw(st.sampled_from((y, y, y, 2))) for y in ys[:-1]] for ys in choice]
    arguments: Arguments = {
        "correct_len": unwritten(draw, (rows,), torch.int64),
        "bonus": unwritten(draw, (rows,), torch.int64),
        "ids": index(draw, ids),
        "choice": index(draw, choice),
        "counts": index(draw, [draw(st.integers(-1, width)) for _ in range(rows)]),
    }
    return KernelCase("greedy_accept", arguments)


@st.composite
def greedy_choice(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, large: bool = False) -> KernelCase:
    """Few distinct values, so that ties are common; NaN, infinities and both zeros among floats. Large: the same values
    again and again."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, vocabulary = distinct(draw, 2, 20)
    values: tuple[float, ...] = (-3, 0, 5, 2)
    if dtype.is_floating_point:
        values = (-3.0, 0.0, -0.0, 5.0, float("nan"), float("inf"), float("-inf"))
    few = st.lists(st.sampled_from(values), min_size=1, max_size=3)
    rows = []
    for _ in range(tokens):
        chosen = st.sampled_from(draw(few))
        row = [draw(chosen) for _ in range(vocabulary)]
        rows.append(_far_apart(draw, row, -3) if large else row)
    arguments: Arguments = {
        "choice": unwritten(draw, (tokens,), torch.int64),
        "logits": place(draw, torch.tensor(rows, dtype=dtype)),
    }
    return KernelCase("greedy_choice", arguments)


def _far_apart(draw: Draw, row: list[float], lowest: float) -> list[float]:
    """The values of a row spread over a vocabulary of ten thousand, with the lowest of all between them."""
    spread = [lowest] * 10_000
    for value in row:
        spread[draw(st.integers(0, len(spread) - 1))] = value
    return spread


@st.composite
def ring_mix(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """One to three dimensions, and salts of both signs."""
    del dtypes
    shape = tuple(distinct(draw, draw(st.integers(1, 3))))
    arguments: Arguments = {
        "out": unwritten(draw, shape, torch.int64),
        "x": given(draw, shape, torch.int64),
        "salt": draw(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 100)),
    }
    return KernelCase("ring_mix", arguments)


@st.composite
def ring_linear(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """Inputs and outputs over and under the block size."""
    del dtypes
    tokens, inputs, outputs = distinct(draw, 3, 80)
    arguments: Arguments = {
        "out": unwritten(draw, (tokens % 7 + 1, outputs), torch.int64),
        "x": given(draw, (tokens % 7 + 1, inputs), torch.int64),
        "weight": given(draw, (outputs, inputs), torch.int64),
    }
    return KernelCase("ring_linear", arguments)


def _rowwise(draw: Draw, values: torch.Tensor) -> Buffer:
    """Place values [.., I] with the last dimension contiguous, which the linear ops demand, and gaps between rows."""
    width = values.shape[-1]
    stride, offset = width + draw(st.integers(0, 3)), draw(st.integers(0, 5))
    size = offset + stride * values.shape[0] + draw(st.integers(1, 5))
    poison = draw(st.sampled_from(VALUE_POISONS[values.is_floating_point()]))
    buffer = Buffer(torch.full((size,), poison, dtype=values.dtype), tuple(values.shape), (stride, 1), offset)
    buffer.tensor.copy_(values)
    return buffer


def _linear_case(draw: Draw, op: str, dtypes: Dtypes, *, norm: bool = False, gated: bool = False) -> KernelCase:
    dtype = draw(st.sampled_from(dtypes))
    tokens, inputs, outputs = draw(st.lists(st.integers(1, 40), min_size=3, max_size=3, unique=True))
    tokens = tokens % 4 + 1
    out = torch.full((tokens, outputs), draw(st.sampled_from(VALUE_POISONS[True])), dtype=dtype)
    if op == "linear_add":
        out = values_of(draw, (tokens, outputs), dtype)
    arguments: dict[str, Buffer | int | float] = {
        "residual" if op == "linear_add" else "out": _rowwise(draw, out),
        "x": _rowwise(draw, values_of(draw, (tokens, inputs), dtype)),
    }
    if norm:
        # The linear ops take the norm's weight as a model holds it, contiguous.
        weight = values_of(draw, (inputs,), dtype)
        arguments["norm"] = Buffer(weight, (inputs,), (1,), 0)
    # An eighth keeps sums near 1, so that one bound serves all widths.
    rows = 2 * outputs if gated else outputs
    arguments["weight"] = _rowwise(draw, values_of(draw, (rows, inputs), dtype) / 8)
    if norm:
        arguments["eps"] = draw(st.sampled_from((1e-6, 1e-2)))
    return KernelCase(op, arguments)


@st.composite
def narrow_linear(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """One to four tokens, with gaps between rows of every matrix."""
    return _linear_case(draw, "narrow_linear", dtypes)


@st.composite
def norm_linear(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """As narrow_linear, of a normed input."""
    return _linear_case(draw, "norm_linear", dtypes, norm=True)


@st.composite
def norm_gate_up(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """As norm_linear, with a weight that holds gate and up."""
    return _linear_case(draw, "norm_gate_up", dtypes, norm=True, gated=True)


@st.composite
def linear_add(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """As narrow_linear, added to what is there."""
    return _linear_case(draw, "linear_add", dtypes)


CASES: dict[str, Callable[..., st.SearchStrategy[KernelCase]]] = {
    "add_rms_norm": add_rms_norm,
    "assign_slots": assign_slots,
    "greedy_accept": greedy_accept,
    "greedy_choice": greedy_choice,
    "kv_move": kv_move,
    "kv_write": kv_write,
    "linear_add": linear_add,
    "narrow_linear": narrow_linear,
    "norm_gate_up": norm_gate_up,
    "norm_linear": norm_linear,
    "paged_attention": paged_attention,
    "ring_linear": ring_linear,
    "ring_mix": ring_mix,
    "rms_norm": rms_norm,
    "rope": rope,
    "silu_mul": silu_mul,
    **STATE_CASES,
}
