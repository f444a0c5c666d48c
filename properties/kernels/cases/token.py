"""Calls of the op that does all of the attention of one token. `N` KV heads, `G` query heads per KV head."""

from __future__ import annotations

import torch

from draftproof.properties.choose import Choose
from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import ANY, Arguments, Sizes, calls, floats
from draftproof.properties.kernels.case import Buffer
from draftproof.properties.kernels.cases.cache import tables
from draftproof.properties.kernels.cases.dense import linear_weight, rowwise

# Most positions of a usual table.
_POSITIONS = 216


@calls(floats)
def token_attention(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose a token anywhere in a request on scattered pages; its slot is its position's, another's, or none.

    What is asked for is what it sees.
    """
    heads, group, half, small, inputs, requests = bf.distinct(
        choose, "heads", "group", "half", "page_size", "inputs", "requests", aim=_few(choose, aim)
    )
    page_size, seen = bf.page_size(choose, small, aim), aim.get("positions", 0)
    pages = max(choose.integer(1, max(1, _POSITIONS // page_size)), -(-seen // page_size))
    usual = min(pages * page_size, _POSITIONS)
    lengths = [choose.integer(0, usual) for _ in range(requests)]
    if aim:
        lengths[0] = seen or choose.integer(usual // 2 + 1, usual)
    table, live, size = tables(choose, lengths, pages, page_size, whole=1 if aim else 0)
    row = 0 if aim else choose.integer(0, requests - 1)
    position = lengths[row] - 1 if aim else choose.integer(-1, lengths[row] - 1)
    slot = table[row][position // page_size] * page_size + position % page_size if position >= 0 else -1
    # Its page may be a hole, and then no number of a slot at all.
    slot = slot if -1 <= slot < size else -1
    other = choose.one_of((choose.one_of(live or (0,)), choose.one_of((*bf.WILD, size))))
    slot = choose.one_of((slot, slot, other))
    known = row if aim else choose.one_of((row, row, row, row, row, -1, requests))
    pools = [bf.owned(choose, (size, heads, 2 * half), live, dtype) for _ in range(2)]
    weight = linear_weight(choose, (heads * group + 2 * heads) * 2 * half, inputs, dtype)
    return {
        "out": bf.unwritten(choose, (1, heads * group, 2 * half), dtype),
        "k_pool": pools[0],
        "v_pool": pools[1],
        "x": rowwise(choose, bf.values_of(choose, (1, inputs), dtype)),
        "norm": Buffer(bf.values_of(choose, (inputs,), dtype), (inputs,), (1,), 0),
        "weight": rowwise(choose, weight),
        "eps": choose.one_of((1e-6, 1e-2)),
        "inv_freq": bf.given(choose, (half,), torch.float32),
        "positions": bf.index(choose, [position]),
        "slot_mapping": bf.index(choose, [slot]),
        "page_table": bf.index(choose, table),
        "req_rows": bf.index(choose, [known]),
        "page_size": page_size,
        "scale": choose.one_of((1.0, 0.375, 0.125)),
    }


def _few(choose: Choose, aim: Sizes) -> Sizes:
    """Return the aim, with few heads beside what is large."""
    if max(aim.values(), default=0) <= 16:
        return aim
    return {"heads": choose.integer(1, 2), "group": choose.integer(1, 3), "requests": 2, **aim}
