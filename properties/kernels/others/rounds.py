"""Calls of ops between verify and the next draft. `B` rows of a launch, `W` verify width, `V` vocabulary."""

from __future__ import annotations

import torch

from draftproof.properties.choose import Choose
from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import ANY, Arguments, Sizes, calls


@calls()
def draft_extend_inputs(choose: Choose, _aim: Sizes = ANY) -> Arguments:
    """Choose requests that accept no draft, some or all; launches of more rows than a block."""
    batch, width = choose.one_of(((1, 4), (3, 2), (5, 3), (40, 4), (131, 1)))
    return {
        "correct_len": bf.unwritten(choose, (batch,), torch.int64),
        "select": bf.unwritten(choose, (batch,), torch.int64),
        "ids": bf.unwritten(choose, (batch * width,), torch.int64),
        "accept_lens": bf.index(choose, bf.numbers(choose, (batch,), width, 1)),
        "predict": bf.index(choose, bf.numbers(choose, (batch * width,), 999)),
        "width": width,
    }


@calls()
def rotate_ids(choose: Choose, _aim: Sizes = ANY) -> Arguments:
    """Choose windows of no token, one, several, or more than a block, with the new token at the end or before."""
    lengths = [choose.one_of((0, 1, 2, 3, 5, 8, 9, 17, 40, 129)) for _ in range(choose.integer(1, 5))]
    starts = [choose.integer(0, 2)]
    for length in lengths:
        starts.append(starts[-1] + length)
    at_end = choose.boolean()
    select = [
        start + (length - 1 if at_end or not length else choose.integer(0, length - 1))
        for start, length in zip(starts, lengths, strict=False)
    ]
    ids = bf.numbers(choose, (starts[-1] + choose.integer(1, 3),), 999)
    return {
        "ids": bf.index(choose, ids),
        "starts": bf.index(choose, starts[:-1]),
        "lengths": bf.index(choose, lengths),
        "tokens": bf.index(choose, bf.numbers(choose, (len(lengths),), 1999, 1000)),
        "select": bf.index(choose, select),
    }


@calls()
def sample_indices(choose: Choose, _aim: Sizes = ANY) -> Arguments:
    """Choose requests without drafts, and requests of which no draft, some or all were right."""
    batch = choose.integer(1, 6)
    drafts = bf.numbers(choose, (batch,), 4)
    drafts[choose.integer(0, batch - 1)] = 0
    # Of requests without drafts, some sample nothing: what is left of their prompts is longer than a step.
    valid = torch.minimum(bf.numbers(choose, (batch,), 5, 1), drafts + 1) - bf.numbers(choose, (batch,), 1) * (
        drafts == 0
    )
    extra = bf.numbers(choose, (batch,), 3) * (drafts == 0)
    return {
        "indices": bf.unwritten(choose, (batch,), torch.int64),
        "rejected": bf.unwritten(choose, (batch,), torch.int64),
        "cu_drafts": bf.index(choose, drafts.cumsum(0)),
        "valid": bf.index(choose, valid),
        "cu_tokens": bf.index(choose, torch.cat((torch.zeros(1, dtype=torch.int64), (drafts + 1 + extra).cumsum(0)))),
    }


@calls()
def next_tokens(choose: Choose, _aim: Sizes = ANY) -> Arguments:
    """Choose rows in which nothing, something or everything is valid, and discarded ones."""
    batch, width = bf.distinct(choose, "batch", "width")
    vocabulary = 50
    sampled = bf.numbers(choose, (batch, width), vocabulary - 1)
    valid = bf.numbers(choose, (batch,), width)
    sampled[torch.arange(width) >= valid[:, None]] = -1
    return {
        "next": bf.unwritten(choose, (batch,), torch.int64),
        "valid": bf.unwritten(choose, (batch,), torch.int64),
        "sampled": bf.index(choose, sampled),
        "discard": bf.index(choose, bf.numbers(choose, (batch,), 3) == 0),
        "backup": bf.index(choose, bf.numbers(choose, (batch,), vocabulary - 1)),
        "vocabulary": vocabulary,
    }


@calls()
def step_slots(choose: Choose, _aim: Sizes = ANY) -> Arguments:
    """Choose positions inside a page, at its end, and at the end of the longest request; rows that are padding."""
    batch, pages, page_size = bf.distinct(choose, "batch", "pages", "page_size")
    most = choose.integer(1, pages * page_size)
    positions = bf.numbers(choose, (batch,), most - 1)
    positions[choose.integer(0, batch - 1)] = most - 1
    table = torch.randperm(batch * pages, generator=bf.generator(choose))
    return {
        "positions": bf.unwritten(choose, (batch,), torch.int64),
        "slots": bf.unwritten(choose, (batch + choose.integer(0, 3),), torch.int64),
        "seq_lens": bf.index(choose, positions + 1),
        "before": bf.index(choose, positions),
        "page_table": bf.index(choose, table.reshape(batch, pages)),
        "page_size": page_size,
        "max_len": most,
    }


@calls()
def expand_values(choose: Choose, _aim: Sizes = ANY) -> Arguments:
    """Choose requests of no token, one and several; values that are replaced."""
    batch = choose.integer(1, 6)
    counts = bf.numbers(choose, (batch,), 5)
    counts[choose.integer(0, batch - 1)] = 0
    room = int(counts.sum()) + choose.integer(1, 3)
    return {
        "out": bf.unwritten(choose, (room,), torch.int64),
        "values": bf.index(choose, bf.numbers(choose, (batch,), 3)),
        "cu_tokens": bf.index(choose, counts.cumsum(0)),
        "old": choose.integer(0, 3),
        "new": choose.integer(0, 9),
    }
