"""Calls of the op that does all of the attention of one token. `N` KV heads, `G` query heads per KV head."""

import torch

from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import Arguments, Draw, calls, floats
from draftproof.properties.kernels.case import Buffer
from draftproof.properties.kernels.cases.cache import tables
from draftproof.properties.kernels.cases.dense import rowwise
from draftproof.properties.strategies.examples import integers, sampled


@calls(floats)
def token_attention(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw a token anywhere in a request on scattered pages; its slot is its position's, another's, or none.

    Large: more positions than a program takes at once.
    """
    heads, group, half, small, inputs, requests = bf.distinct(draw, 6)
    page_size = bf.page_size(draw, small)
    pages = draw(integers(1, max(1, 216 // page_size)))
    if large:
        heads, group, half, requests = 1, 2, draw(sampled((16, 20, 32))), 2
        pages = 512 // page_size + draw(integers(1, 1 + 80 // page_size))
    lengths = [draw(integers(0, pages * page_size)) for _ in range(requests)]
    if large:
        lengths[0] = draw(integers(513, pages * page_size))
    table, live, size = tables(draw, lengths, pages, page_size)
    row = 0 if large else draw(integers(0, requests - 1))
    position = draw(integers(512, lengths[0] - 1)) if large else draw(integers(-1, lengths[row] - 1))
    slot = table[row][position // page_size] * page_size + position % page_size if position >= 0 else -1
    # Its page may be a hole, and then no number of a slot at all.
    slot = slot if -1 <= slot < size else -1
    slot = draw(sampled((slot, slot, slot, slot, draw(sampled(live or (0,))), draw(sampled((*bf.WILD, size))))))
    known = draw(sampled((row, row, row, row, row, -1, requests)))
    pools = [bf.owned(draw, (size, heads, 2 * half), live, dtype) for _ in range(2)]
    # As the linear ops have them: an eighth keeps sums near 1, and the norm is contiguous.
    weight = bf.values_of(draw, ((heads * group + 2 * heads) * 2 * half, inputs), dtype) / 8
    return {
        "out": bf.unwritten(draw, (1, heads * group, 2 * half), dtype),
        "k_pool": pools[0],
        "v_pool": pools[1],
        "x": rowwise(draw, bf.values_of(draw, (1, inputs), dtype)),
        "norm": Buffer(bf.values_of(draw, (inputs,), dtype), (inputs,), (1,), 0),
        "weight": rowwise(draw, weight),
        "eps": draw(sampled((1e-6, 1e-2))),
        "inv_freq": bf.given(draw, (half,), torch.float32),
        "positions": bf.index(draw, [position]),
        "slot_mapping": bf.index(draw, [slot]),
        "page_table": bf.index(draw, table),
        "req_rows": bf.index(draw, [known]),
        "page_size": page_size,
        "scale": draw(sampled((1.0, 0.375, 0.125))),
    }
