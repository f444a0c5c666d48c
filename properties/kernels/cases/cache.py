"""Calls of the ops on the KV cache.

`T` tokens, `S` pool slots, `N` KV heads, `G` query heads per KV head, `H` head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from draftproof.properties.choose import Choose
from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import ANY, Arguments, Sizes, calls, codes, floats, ring_and_floats
from draftproof.properties.kernels.case import Buffer

# Most positions of a usual table.
_POSITIONS = 216
# From this many positions on, other sizes are small: the twin looks at every number that a token sees.
_MANY = 64


@calls(ring_and_floats)
def kv_write(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose unique slots, several rows to slot 0, slots that do not exist; room for a pool at the other's strides."""
    return _written(choose, dtype, dtype, aim)


def _written(choose: Choose, dtype: torch.dtype, stored: torch.dtype, aim: Sizes) -> Arguments:
    tokens, heads, k_width, v_width, size = _entries(choose, aim)
    return {
        "k_pool": bf.given(choose, (size, heads, k_width), stored, 9 * size),
        "v_pool": bf.given(choose, (size, heads, v_width), stored, 9 * size),
        "k": bf.given(choose, (tokens, heads, k_width), dtype),
        "v": bf.given(choose, (tokens, heads, v_width), dtype),
        "slot_mapping": bf.index(choose, _targets(choose, tokens, size, aim)),
    }


def _entries(choose: Choose, aim: Sizes) -> list[int]:
    """Return tokens, heads, head sizes of keys and values, and a number of slots larger than the number of tokens."""
    tokens, heads, *widths, extra = bf.distinct(choose, "tokens", "heads", "keys", "values", "spare", aim=aim)
    k_width, v_width = bf.alike(choose, widths[0], widths[1], asked=bool(aim))
    return [tokens, heads, k_width, v_width, aim.get("slots", tokens + extra)]


def _targets(choose: Choose, tokens: int, size: int, aim: Sizes) -> list[int]:
    """Return slots to write: the last one where a size is asked for, and others that are not 0, or do not exist."""
    wild = (*bf.WILD, size, 0)
    free = bf.shuffled(choose, range(1, size))[:tokens]
    slots = [choose.one_of((slot, slot, choose.one_of(wild))) for slot in free]
    slots += [choose.one_of(wild) for _ in range(tokens - len(slots))]
    # Of what is sent to slot 0 any may win: the twin writes each of them.
    slots = [*slots[:_MANY], *[slot or -1 for slot in slots[_MANY:]]]
    return _ending_in(slots, size - 1) if aim else slots


def _ending_in(slots: Sequence[int], last: int) -> list[int]:
    """Return as many slots, with `last` in the last place and nowhere else."""
    return [*[slot for slot in slots if slot != last][: len(slots) - 1], last]


@calls(ring_and_floats)
def kv_move(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY, missing: bool = True) -> Arguments:
    """Choose sources and targets that overlap, and with `missing` rows where either does not exist."""
    tokens, heads, k_width, v_width, size = _entries(choose, aim)
    wild = (*bf.WILD, size)

    def index(slot: int) -> int:
        return choose.one_of((slot, slot, choose.one_of(wild))) if missing else slot

    targets = [index(slot) for slot in bf.shuffled(choose, range(size))[:tokens]]
    sources = [index(choose.integer(0, size - 1)) for _ in range(tokens)]
    if aim:
        # The first row moves from the last slot, and the last one to it.
        targets = _ending_in(targets, size - 1)
        sources[-1] = 0
        if tokens > 1:
            sources[0], targets[0] = size - 1, next(slot for slot in range(size) if slot not in targets[1:])
    return {
        "k_pool": bf.given(choose, (size, heads, k_width), dtype),
        "v_pool": bf.given(choose, (size, heads, v_width), dtype),
        "src": bf.index(choose, sources),
        "dst": bf.index(choose, targets),
    }


@calls(ring_and_floats)
def paged_attention(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose requests of different lengths on scattered pages, with stale entries beyond a length, holes, unknown rows.

    Many positions are seen by the first token.
    """
    return _attention(choose, dtype, aim)


@calls(ring_and_floats)
def windowed_attention(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose as `paged_attention`, each token with a window: of one position, of some, beyond its own place."""
    return _windowed(choose, dtype, aim)


def _windowed(choose: Choose, dtype: torch.dtype, aim: Sizes) -> Arguments:
    hidden = choose.one_of((0, 5, 40)) if "positions" in aim else 0
    arguments = _attention(choose, dtype, aim, hidden)
    positions = _tensor(arguments, "positions").tolist()
    window = choose.integer(1, 24)
    first = [max(-3, place + 1 - choose.one_of((window, window, 1, 600, 0))) for place in positions]
    if aim:
        first[0] = hidden or choose.one_of((0, -3))
    names = list(arguments)
    arguments["first"] = bf.index(choose, first)
    order = (*names[: names.index("positions")], "first", *names[names.index("positions") :])
    return {name: arguments[name] for name in order}


def _tensor(arguments: Arguments, name: str) -> torch.Tensor:
    buffer = arguments[name]
    assert isinstance(buffer, Buffer), f"{name} is no tensor"
    return buffer.tensor


@calls(codes)
def quantised_write(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose the slots of `kv_write`, for codes of either width."""
    written = _written(choose, torch.int64, dtype, aim)
    scales = {f"{name}_scales": _tensor(written, f"{name}_pool").shape[:2] for name in ("k", "v")}
    made = {name: bf.given(choose, shape, torch.int64, 9 * shape[0]) for name, shape in scales.items()}
    return {"k_pool": written["k_pool"], "v_pool": written["v_pool"], **made, **written}


@calls(codes)
def quantised_attention(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose the calls of `windowed_attention` in the ring, over codes and scales with a value in every slot."""
    arguments, made = _windowed(choose, torch.int64, aim), Arguments()
    for name, value in arguments.items():
        is_pool = name in ("k_pool", "v_pool")
        made[name] = bf.given(choose, _tensor(arguments, name).shape, dtype) if is_pool else value
        if name == "v_pool":
            for pool in ("k", "v"):
                made[f"{pool}_scales"] = bf.given(choose, _tensor(arguments, f"{pool}_pool").shape[:2], torch.int64)
    return made


# Scales of layers: powers of two, and others; with the small ones numbers are beyond what FP8 holds.
_FP8_SCALES = tuple(torch.tensor((1.0, 0.5, 0.3, 0.011, 0.004, 7.0), dtype=torch.float32).tolist())


@calls(floats)
def fp8_write(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose the slots of `kv_write`; numbers that lie between two of FP8, on one, and beyond the largest."""
    arguments = _written(choose, dtype, torch.uint8, aim)
    if choose.boolean():
        # Half of them lie in the middle of two numbers of FP8, where scales are powers of two.
        for name in ("k", "v"):
            shape = _tensor(arguments, name).shape
            arguments[name] = bf.place(choose, bf.numbers(choose, shape, 64, -64).to(dtype) / 16)
    return {**arguments, "k_scale": choose.one_of(_FP8_SCALES), "v_scale": choose.one_of(_FP8_SCALES)}


@calls(floats)
def fp8_attention(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose the calls of `windowed_attention`, over bytes that read back are as large as its numbers."""
    arguments = _windowed(choose, dtype, aim)
    scales = [choose.one_of((0.75, 0.25, 1.0, 3.0)) for _ in range(2)]
    for name, scale in zip(("k_pool", "v_pool"), scales, strict=True):
        pool = _tensor(arguments, name).float() / scale
        # Slots without an owner hold NaN, or numbers far beyond.
        arguments[name] = bf.place(choose, pool.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8))
    return {**arguments, "k_scale": scales[0], "v_scale": scales[1]}


def _attention(choose: Choose, dtype: torch.dtype, aim: Sizes, hidden: int = 0) -> Arguments:
    """Return the arguments of attention; what is asked for is what the first token sees, behind `hidden` positions."""
    seen = aim.get("positions", 0) + hidden
    tokens, heads, group, *widths, requests, small = bf.distinct(
        choose, "tokens", "heads", "group", "keys", "values", "requests", "page_size", aim=_few(choose, aim)
    )
    k_width, v_width = bf.alike(choose, widths[0], widths[1], asked=bool(aim))
    page_size = bf.page_size(choose, small, aim)
    pages = max(choose.integer(1, max(1, _POSITIONS // page_size)), -(-seen // page_size))
    usual = min(pages * page_size, _POSITIONS)
    lengths = [choose.integer(0, usual) for _ in range(requests)]
    if aim:
        lengths[0] = seen or choose.integer(usual // 2 + 1, usual)
    table, live, size = tables(choose, lengths, pages, page_size, whole=1 if aim else 0)
    rows, positions = _asked(choose, tokens, lengths, pages * page_size)
    if aim:
        rows[0], positions[0] = 0, lengths[0] - 1
    pools = [bf.owned(choose, (size, heads, width), live, dtype) for width in (k_width, v_width)]
    queries, scale = bf.given(choose, (tokens, heads * group, k_width), dtype), choose.one_of((1.0, 0.375, 0.125))
    if aim and dtype.is_floating_point:
        last = table[0][positions[0] // page_size] * page_size + positions[0] % page_size
        _heed(queries.tensor[0].reshape(heads, group, k_width), pools[0].tensor, live[: lengths[0]], last, scale)
    return {
        "out": bf.unwritten(choose, (tokens, heads * group, v_width), dtype),
        "q": queries,
        "k_pool": pools[0],
        "v_pool": pools[1],
        "page_table": bf.index(choose, table),
        "req_rows": bf.index(choose, rows),
        "positions": bf.index(choose, positions),
        "page_size": page_size,
        "scale": scale,
    }


def _heed(query: torch.Tensor, keys: torch.Tensor, slots: list[int], last: int, scale: float) -> None:
    """Let a query of each head [N,G,H] heed one slot as much as all of them: no bound hides that it is lost."""
    for head, of_head in enumerate(query.double()):
        one, key = of_head[of_head.norm(dim=1).argmax()] * scale, keys[last, head]
        more = (keys[slots, head].double() @ one).logsumexp(0) - key.double() @ one
        key += (more / (one @ one) * one).clamp(-16, 16)


def _few(choose: Choose, aim: Sizes) -> Sizes:
    """Return the aim, with few tokens, heads and requests beside what is large."""
    if max(aim.values(), default=0) <= _MANY:
        return aim
    few = {"tokens": choose.integer(2, 5), "heads": choose.integer(1, 2), "group": choose.integer(1, 3), "requests": 2}
    return {**few, **aim}


def _asked(choose: Choose, tokens: int, lengths: Sequence[int], most: int) -> tuple[list[int], list[int]]:
    """Return a row and a position for each token; some rows do not exist."""
    rows, positions = [], []
    for _ in range(tokens):
        row = choose.integer(0, len(lengths) - 1)
        # Only a full row may be asked for more than it holds: elsewhere that memory was never written.
        positions.append(choose.integer(-1, lengths[row] - 1 + (3 if lengths[row] == most else 0)))
        rows.append(choose.one_of((row, row, row, -1, len(lengths), 1 << 40)))
    return rows, positions


def tables(
    choose: Choose, lengths: Sequence[int], pages: int, page_size: int, whole: int = 0
) -> tuple[list[list[int]], list[int], int]:
    """Return table, slots that hold values, and the pool's size; the last page may be cut short by the pool's end.

    The first `whole` rows have few holes, and none at their ends.
    """
    needed = [-(-length // page_size) for length in lengths]
    # Page 0 as well: an op knows of no scratch.
    free = iter(bf.shuffled(choose, range(sum(needed) + 2)))
    table, live = [], []
    size = (sum(needed) + 2) * page_size - choose.integer(0, page_size - 1)
    for row, (count, length) in enumerate(zip(needed, lengths, strict=True)):
        own = [next(free) for _ in range(count)]
        if row < whole and own and own[-1] == sum(needed) + 1:
            # A page that is cut short does not hold the last position.
            own[-1] = next(free)
        live += [own[p // page_size] * page_size + p % page_size for p in range(length)]
        holes = [_or_hole(choose, page, size, 40 if row < whole else 5) for page in own]
        if row < whole and own:
            holes[0], holes[-1] = own[0], own[-1]
        table.append(holes + [choose.one_of((*bf.WILD, *bf.INDEX_POISONS)) for _ in range(pages - count)])
    return table, [slot for slot in live if slot < size], size


def _or_hole(choose: Choose, page: int, size: int, usual: int) -> int:
    """Return the page, or what is no page in five of `usual` + 5 cases."""
    wild = (*bf.WILD, size)
    place = choose.integer(0, usual + len(wild) - 1)
    return page if place < usual else wild[place - usual]
