"""Strategies for kernel cases, one per op: `CASES[op](dtypes)`.

Sizes are pairwise distinct, since many wrong strides hide behind sizes that are equal. Every tensor lies somewhere in a
larger allocation, its dimensions in any order, and what is around it is poison; so are pool slots that no request owns.
`T` tokens, `S` pool slots, `N` KV heads, `G` query heads per KV head, `H` head size, `P` page size, `R` rows.
"""

from collections.abc import Callable, Sequence

import torch
from hypothesis import strategies as st

from draftproof.properties.contracts.kernel import Buffer, KernelCase

Draw = st.DrawFn
Dtypes = Sequence[torch.dtype]
Arguments = dict[str, Buffer | int | float]

FLOATS: Dtypes = (torch.float32,)
RING_AND_FLOATS: Dtypes = (torch.int64, torch.float32)

_VALUE_POISONS = {True: (float("nan"), -3e30), False: (0x5EED5EED5EED5EED, -1)}
# Poison for indices is in range where it can be: a wild one would crash rather than mislead.
_INDEX_POISONS = (0, 1, 2)
_WILD = (-1, -7, 1 << 40, (1 << 62) + 1)


def _distinct(draw: Draw, count: int, high: int = 9) -> list[int]:
    return draw(st.lists(st.integers(1, high), min_size=count, max_size=count, unique=True))


def _layout(draw: Draw, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, int]:
    """Draw strides (dimensions in any order, gaps between them), an offset, and the allocation's size."""
    strides, step = [0] * len(shape), 1
    for dimension in draw(st.permutations(range(len(shape)))):
        strides[dimension] = step + draw(st.integers(0, 2))
        step = strides[dimension] * max(1, shape[dimension])
    offset = draw(st.integers(0, 5))
    return tuple(strides), offset, offset + step + draw(st.integers(1, 5))


def _place(draw: Draw, values: torch.Tensor, poisons: Sequence[float] | None = None) -> Buffer:
    """Put `values` into an allocation full of poison."""
    strides, offset, size = _layout(draw, tuple(values.shape))
    poisons = poisons or _VALUE_POISONS[values.is_floating_point()]
    storage = torch.full((size,), draw(st.sampled_from(poisons)), dtype=values.dtype)
    buffer = Buffer(storage, tuple(values.shape), strides, offset)
    buffer.tensor.copy_(values)
    return buffer


def _index(draw: Draw, values: Sequence) -> Buffer:
    return _place(draw, torch.tensor(values, dtype=torch.int64), _INDEX_POISONS)


def _values(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return random values: the whole ring, or floats in [-4, 4]."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    if dtype == torch.int64:
        return torch.randint(-(1 << 63), (1 << 63) - 1, shape, generator=generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64).clamp_(-4.0, 4.0).to(dtype)


def _unwritten(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype) -> Buffer:
    """Return an output: poison throughout."""
    poison = draw(st.sampled_from(_VALUE_POISONS[dtype.is_floating_point]))
    return _place(draw, torch.full(shape, poison, dtype=dtype))


def _given(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype) -> Buffer:
    return _place(draw, _values(draw, shape, dtype))


@st.composite
def kv_write(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS) -> KernelCase:
    """Unique slots, several rows to slot 0, and slots that do not exist."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, heads, k_width, v_width, extra = _distinct(draw, 5)
    size = tokens + extra
    free = draw(st.permutations(range(1, size)))
    wild = st.sampled_from((*_WILD, size, 0))
    slots = [draw(st.one_of(st.just(slot), st.just(slot), wild)) for slot in free[:tokens]]
    slots += [draw(wild) for _ in range(tokens - len(slots))]
    return KernelCase(
        "kv_write",
        {
            "k_pool": _given(draw, (size, heads, k_width), dtype),
            "v_pool": _given(draw, (size, heads, v_width), dtype),
            "k": _given(draw, (tokens, heads, k_width), dtype),
            "v": _given(draw, (tokens, heads, v_width), dtype),
            "slots": _index(draw, slots),
        },
    )


@st.composite
def kv_move(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS) -> KernelCase:
    """Sources and targets that overlap, and rows where either does not exist."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, heads, k_width, v_width, extra = _distinct(draw, 5)
    size = tokens + extra
    wild = st.sampled_from((*_WILD, size))
    targets = [draw(st.one_of(st.just(t), st.just(t), wild)) for t in draw(st.permutations(range(size)))[:tokens]]
    sources = [draw(st.one_of(st.integers(0, size - 1), st.integers(0, size - 1), wild)) for _ in range(tokens)]
    return KernelCase(
        "kv_move",
        {
            "k_pool": _given(draw, (size, heads, k_width), dtype),
            "v_pool": _given(draw, (size, heads, v_width), dtype),
            "src": _index(draw, sources),
            "dst": _index(draw, targets),
        },
    )


@st.composite
def paged_attention(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS, most_pages: int = 24) -> KernelCase:
    """Requests of different lengths on scattered pages; stale entries beyond a length; holes; unknown rows."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, heads, group, k_width, v_width, requests, page_size = _distinct(draw, 7)
    pages = draw(st.integers(1, most_pages))
    lengths = [draw(st.integers(0, pages * page_size)) for _ in range(requests)]
    table, live, size = _tables(draw, lengths, pages, page_size)
    rows, positions = [], []
    for _ in range(tokens):
        row = draw(st.integers(0, requests - 1))
        full = lengths[row] == pages * page_size
        # Only a full row may be asked for more than it holds: elsewhere that is memory nobody wrote.
        positions.append(draw(st.integers(-1, lengths[row] - 1 + (3 if full else 0))))
        rows.append(draw(st.sampled_from((row, row, row, -1, requests, 1 << 40))))
    pools = [_pool(draw, (size, heads, width), live, dtype) for width in (k_width, v_width)]
    return KernelCase(
        "paged_attention",
        {
            "out": _unwritten(draw, (tokens, heads * group, v_width), dtype),
            "q": _given(draw, (tokens, heads * group, k_width), dtype),
            "k_pool": pools[0],
            "v_pool": pools[1],
            "table": _index(draw, table),
            "rows": _index(draw, rows),
            "positions": _index(draw, positions),
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
        holes = [draw(st.sampled_from((page, page, page, page, page, *_WILD, size))) for page in own]
        table.append(holes + [draw(st.sampled_from((*_WILD, *_INDEX_POISONS))) for _ in range(pages - count)])
    return table, [slot for slot in live if slot < size], size


def _pool(draw: Draw, shape: tuple[int, ...], live: list[int], dtype: torch.dtype) -> Buffer:
    """Return a pool with values in the live slots and poison in all others."""
    poison = draw(st.sampled_from(_VALUE_POISONS[dtype.is_floating_point]))
    values = torch.full(shape, poison, dtype=dtype)
    values[live] = _values(draw, (len(live), *shape[1:]), dtype)
    return _place(draw, values)


@st.composite
def rms_norm(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """Rows of different size, with the weight's own stride."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, width = _distinct(draw, 2, 40)
    arguments: Arguments = {
        "out": _unwritten(draw, (tokens, width), dtype),
        "x": _given(draw, (tokens, width), dtype),
        "weight": _given(draw, (width,), dtype),
        "eps": draw(st.sampled_from((1e-6, 1e-2))),
    }
    return KernelCase("rms_norm", arguments)


@st.composite
def add_rms_norm(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """As rms_norm, with a residual that is read and written."""
    case = draw(rms_norm(dtypes))
    out = case.buffers["out"]
    residual = _given(draw, out.shape, out.storage.dtype)
    return KernelCase("add_rms_norm", {"out": out, "residual": residual, **dict(list(case.arguments.items())[1:])})


@st.composite
def silu_mul(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """Gate and up side by side."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, width = _distinct(draw, 2, 40)
    arguments: Arguments = {
        "out": _unwritten(draw, (tokens, width), dtype),
        "gate_up": _given(draw, (tokens, 2 * width), dtype),
    }
    return KernelCase("silu_mul", arguments)


@st.composite
def rope(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """Positions up to 5000 and frequencies that fall from 1."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, q_heads, k_heads, half = _distinct(draw, 4)
    frequencies = 1000.0 ** -(torch.arange(half, dtype=torch.float64) / half)
    arguments: Arguments = {
        "q": _given(draw, (tokens, q_heads, 2 * half), dtype),
        "k": _given(draw, (tokens, k_heads, 2 * half), dtype),
        "positions": _index(draw, [draw(st.integers(0, 5000)) for _ in range(tokens)]),
        "inv_freq": _place(draw, frequencies.float()),
    }
    return KernelCase("rope", arguments)


@st.composite
def assign_slots(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """Live, surplus and padding columns; pages that are missing; positions past the table; unknown rows."""
    del dtypes
    rows, width, requests, pages, page_size = _distinct(draw, 5)
    capacity = pages * page_size
    entry = st.one_of(st.integers(0, 50), st.integers(0, 50), st.just(-1))
    arguments: Arguments = {
        "positions": _unwritten(draw, (rows, width), torch.int64),
        "slots": _unwritten(draw, (rows, width), torch.int64),
        "table": _index(draw, [[draw(entry) for _ in range(pages)] for _ in range(requests)]),
        "rows": _index(draw, [draw(st.integers(0, requests) | st.just(-1)) for _ in range(rows)]),
        "lengths": _index(draw, [draw(st.integers(0, capacity)) for _ in range(rows)]),
        "counts": _index(draw, [draw(st.integers(-1, width)) for _ in range(rows)]),
        "page_size": page_size,
        "max_len": draw(st.integers(1, capacity)),
    }
    return KernelCase("assign_slots", arguments)


@st.composite
def greedy_accept(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """Ids and choices from three tokens, so that runs of every length occur, beyond the count too."""
    del dtypes
    rows, width = _distinct(draw, 2)
    choice = [[draw(st.integers(0, 2)) for _ in range(width)] for _ in range(rows)]
    ids = [[7] + [draw(st.sampled_from((y, y, y, 2))) for y in ys[:-1]] for ys in choice]
    arguments: Arguments = {
        "correct_len": _unwritten(draw, (rows,), torch.int64),
        "bonus": _unwritten(draw, (rows,), torch.int64),
        "ids": _index(draw, ids),
        "choice": _index(draw, choice),
        "counts": _index(draw, [draw(st.integers(-1, width)) for _ in range(rows)]),
    }
    return KernelCase("greedy_accept", arguments)


@st.composite
def greedy_choice(draw: Draw, dtypes: Dtypes = RING_AND_FLOATS) -> KernelCase:
    """Few distinct values, so that ties are common; NaN, infinities and both zeros among floats."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, vocabulary = _distinct(draw, 2, 20)
    values: tuple[float, ...] = (-3, 0, 5, 2)
    if dtype.is_floating_point:
        values = (-3.0, 0.0, -0.0, 5.0, float("nan"), float("inf"), float("-inf"))
    few = st.lists(st.sampled_from(values), min_size=1, max_size=3)
    rows = []
    for _ in range(tokens):
        chosen = st.sampled_from(draw(few))
        rows.append([draw(chosen) for _ in range(vocabulary)])
    arguments: Arguments = {
        "choice": _unwritten(draw, (tokens,), torch.int64),
        "logits": _place(draw, torch.tensor(rows, dtype=dtype)),
    }
    return KernelCase("greedy_choice", arguments)


@st.composite
def ring_mix(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """One to three dimensions, and salts of both signs."""
    del dtypes
    shape = tuple(_distinct(draw, draw(st.integers(1, 3))))
    arguments: Arguments = {
        "out": _unwritten(draw, shape, torch.int64),
        "x": _given(draw, shape, torch.int64),
        "salt": draw(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 100)),
    }
    return KernelCase("ring_mix", arguments)


@st.composite
def ring_linear(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """Inputs and outputs over and under the block size."""
    del dtypes
    tokens, inputs, outputs = _distinct(draw, 3, 80)
    arguments: Arguments = {
        "out": _unwritten(draw, (tokens % 7 + 1, outputs), torch.int64),
        "x": _given(draw, (tokens % 7 + 1, inputs), torch.int64),
        "weight": _given(draw, (outputs, inputs), torch.int64),
    }
    return KernelCase("ring_linear", arguments)


def _rowwise(draw: Draw, values: torch.Tensor) -> Buffer:
    """Place values [.., I] with the last dimension contiguous, which the linear ops demand, and gaps between rows."""
    width = values.shape[-1]
    stride, offset = width + draw(st.integers(0, 3)), draw(st.integers(0, 5))
    size = offset + stride * values.shape[0] + draw(st.integers(1, 5))
    poison = draw(st.sampled_from(_VALUE_POISONS[values.is_floating_point()]))
    buffer = Buffer(torch.full((size,), poison, dtype=values.dtype), tuple(values.shape), (stride, 1), offset)
    buffer.tensor.copy_(values)
    return buffer


def _linear_case(draw: Draw, op: str, dtypes: Dtypes, *, norm: bool = False, gated: bool = False) -> KernelCase:
    dtype = draw(st.sampled_from(dtypes))
    tokens, inputs, outputs = draw(st.lists(st.integers(1, 40), min_size=3, max_size=3, unique=True))
    tokens = tokens % 4 + 1
    out = torch.full((tokens, outputs), draw(st.sampled_from(_VALUE_POISONS[True])), dtype=dtype)
    if op == "linear_add":
        out = _values(draw, (tokens, outputs), dtype)
    arguments: dict[str, Buffer | int | float] = {
        "residual" if op == "linear_add" else "out": _rowwise(draw, out),
        "x": _rowwise(draw, _values(draw, (tokens, inputs), dtype)),
    }
    if norm:
        # The linear ops take the norm's weight as a model holds it, contiguous.
        weight = _values(draw, (inputs,), dtype)
        arguments["norm"] = Buffer(weight, (inputs,), (1,), 0)
    # An eighth keeps sums near 1, so that one bound serves all widths.
    rows = 2 * outputs if gated else outputs
    arguments["weight"] = _rowwise(draw, _values(draw, (rows, inputs), dtype) / 8)
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
}
