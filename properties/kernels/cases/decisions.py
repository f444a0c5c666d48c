"""Calls of the integer decisions. `B` rows of a launch, `W` verify width, `V` vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from draftproof.properties.choose import Choose
from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import ANY, Arguments, Sizes, calls, ring_and_floats

# A row's own token and 16 drafts.
_WIDEST = 17
# Tokens of a vocabulary from which on most are the lowest.
_FEW = 20


@calls()
def assign_slots(choose: Choose, aim: Sizes = ANY) -> Arguments:
    """Choose live, surplus and padding columns; pages that are missing; positions past the table; unknown rows.

    What is asked for is what the last row has.
    """
    rows, requests, pages, small = bf.distinct(choose, "rows", "requests", "pages", "page_size", aim=aim)
    width, page_size = aim.get("width", choose.integer(1, _WIDEST)), bf.page_size(choose, small, aim)
    capacity = pages * page_size
    entries = bf.numbers(choose, (requests, pages), 50)
    missing = bf.numbers(choose, (requests, pages), 2) == 0
    known = [choose.one_of((choose.integer(0, requests), choose.integer(0, requests), -1)) for _ in range(rows)]
    lengths = [choose.integer(0, capacity) for _ in range(rows)]
    counts = [choose.integer(-1, width) for _ in range(rows)]
    if aim:
        missing[-1, -1] = False
        known[-1], counts[-1] = requests - 1, width - 1
        lengths[-1] = max(0, capacity - choose.integer(1, width))
    return {
        "positions": bf.unwritten(choose, (rows, width), torch.int64),
        "slot_mapping": bf.unwritten(choose, (rows, width), torch.int64),
        "page_table": bf.index(choose, entries.masked_fill(missing, -1)),
        "req_rows": bf.index(choose, known),
        "seq_lens": bf.index(choose, lengths),
        "num_drafts": bf.index(choose, counts),
        "page_size": page_size,
        "max_len": choose.integer(1, capacity),
    }


@calls()
def greedy_accept(choose: Choose, aim: Sizes = ANY) -> Arguments:
    """Choose ids that agree up to any column, often the first or the last, and beyond it often, from three tokens.

    What is asked for is accepted as a whole by the last row.
    """
    rows, width = bf.distinct(choose, "rows", "width", aim=aim, high=_WIDEST)
    targets = bf.numbers(choose, (rows, width), 2).tolist()
    ids = [_agreeing(choose, own, width - 1 if aim and own is targets[-1] else -1) for own in targets]
    counts = [choose.integer(-1, width) for _ in range(rows)]
    if aim:
        counts[-1] = width - 1
    return {
        "correct_len": bf.unwritten(choose, (rows,), torch.int64),
        "bonus": bf.unwritten(choose, (rows,), torch.int64),
        "accept_index": bf.unwritten(choose, (rows, width), torch.int64),
        "input_ids": bf.index(choose, ids),
        "target_tokens": bf.index(choose, targets),
        "num_drafts": bf.index(choose, counts),
    }


def _agreeing(choose: Choose, targets: Sequence[int], agree: int) -> list[int]:
    """Return ids of a row that agree with its targets up to a column, -1 for any."""
    last = len(targets) - 1
    agree = agree if agree >= 0 else choose.one_of((choose.integer(0, last), choose.one_of((0, last))))
    beyond = [choose.one_of((token, token, token, 2)) for token in targets[agree:-1]]
    return [7, *targets[:agree], *((targets[agree] + 1) % 3 for _ in beyond[:1]), *beyond[1:]]


@calls(ring_and_floats)
def greedy_choice(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose few distinct values, so that ties are common; integers that differ by one beyond 2^53; special floats.

    In a large vocabulary they are spread, and in half of the rows one that is highest is at the end.
    """
    tokens, vocabulary = bf.distinct(choose, "tokens", "vocabulary", aim=aim, high=_FEW)
    values: tuple[float, ...] = (-3, 0, 5, 1 << 60, (1 << 60) + 1)
    if dtype.is_floating_point:
        values = (-3.0, 0.0, -0.0, 5.0, float("nan"), float("inf"), float("-inf"))
    rows = torch.full((tokens, vocabulary), -3, dtype=dtype)
    for token in range(tokens):
        few = torch.tensor([choose.one_of(values) for _ in range(choose.integer(1, 3))], dtype=dtype)
        count = min(vocabulary, _FEW)
        places = bf.numbers(choose, (count,), vocabulary - 1) if vocabulary > _FEW else torch.arange(vocabulary)
        rows[token, places] = few[bf.numbers(choose, (count,), len(few) - 1)]
        if vocabulary > _FEW and choose.boolean():
            rows[token, choose.one_of(((-1,), (-1, 0), (-1, choose.integer(0, vocabulary - 1))))] = 1 << 61
    return {
        "token_ids": bf.unwritten(choose, (tokens,), torch.int64),
        "logits": bf.place(choose, rows),
    }
