"""Calls of the integer decisions. `B` rows of a launch, `W` verify width, `V` vocabulary."""

import torch
from hypothesis import strategies as st

from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import Arguments, Draw, calls, ring_and_floats
from draftproof.properties.strategies.examples import integers, sampled

# A row's own token and 16 drafts.
_WIDEST = 17


@calls()
def assign_slots(draw: Draw) -> Arguments:
    """Draw live, surplus and padding columns; pages that are missing; positions past the table; unknown rows."""
    rows, requests, pages, small = bf.distinct(draw, 4)
    width, page_size = draw(integers(1, _WIDEST)), bf.page_size(draw, small)
    capacity = pages * page_size
    entry = st.one_of(integers(0, 50), integers(0, 50), st.just(-1))
    return {
        "positions": bf.unwritten(draw, (rows, width), torch.int64),
        "slot_mapping": bf.unwritten(draw, (rows, width), torch.int64),
        "page_table": bf.index(draw, [[draw(entry) for _ in range(pages)] for _ in range(requests)]),
        "req_rows": bf.index(draw, [draw(integers(0, requests) | st.just(-1)) for _ in range(rows)]),
        "seq_lens": bf.index(draw, [draw(integers(0, capacity)) for _ in range(rows)]),
        "num_drafts": bf.index(draw, [draw(integers(-1, width)) for _ in range(rows)]),
        "page_size": page_size,
        "max_len": draw(integers(1, capacity)),
    }


@calls()
def greedy_accept(draw: Draw) -> Arguments:
    """Draw ids that agree up to any column, often the first or the last, and beyond it often, from three tokens."""
    rows, width = bf.distinct(draw, 2, _WIDEST)
    choice = [[draw(integers(0, 2)) for _ in range(width)] for _ in range(rows)]
    ids = []
    for ys in choice:
        agree = draw(integers(0, width - 1) | sampled((0, width - 1)))
        beyond = [draw(sampled((y, y, y, 2))) for y in ys[agree:-1]]
        ids.append([7, *ys[:agree], *((ys[agree] + 1) % 3 for _ in beyond[:1]), *beyond[1:]])
    return {
        "correct_len": bf.unwritten(draw, (rows,), torch.int64),
        "bonus": bf.unwritten(draw, (rows,), torch.int64),
        "accept_index": bf.unwritten(draw, (rows, width), torch.int64),
        "input_ids": bf.index(draw, ids),
        "target_tokens": bf.index(draw, choice),
        "num_drafts": bf.index(draw, [draw(integers(-1, width)) for _ in range(rows)]),
    }


@calls(ring_and_floats)
def greedy_choice(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw few distinct values, so that ties are common; integers that differ by one beyond 2^53; special floats.

    Large: the same values again and again.
    """
    tokens, vocabulary = bf.distinct(draw, 2, 20)
    values: tuple[float, ...] = (-3, 0, 5, 1 << 60, (1 << 60) + 1)
    if dtype.is_floating_point:
        values = (-3.0, 0.0, -0.0, 5.0, float("nan"), float("inf"), float("-inf"))
    # Not `sampled`, which would take 0.0 for -0.0.
    few = st.lists(st.sampled_from(values), min_size=1, max_size=3)
    rows = []
    for _ in range(tokens):
        chosen = st.sampled_from(draw(few))
        row = [draw(chosen) for _ in range(vocabulary)]
        rows.append(_far_apart(draw, row, -3) if large else row)
    return {
        "token_ids": bf.unwritten(draw, (tokens,), torch.int64),
        "logits": bf.place(draw, torch.tensor(rows, dtype=dtype)),
    }


def _far_apart(draw: Draw, row: list[float], lowest: float) -> list[float]:
    """Draw the values of a row spread over a vocabulary of ten thousand, with the lowest of all between them."""
    spread = [lowest] * 10_000
    for value in row:
        spread[draw(integers(0, len(spread) - 1))] = value
    return spread
