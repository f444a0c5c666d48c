"""Calls of ops between verify and the next draft. `B` rows of a launch, `W` verify width, `V` vocabulary."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import Arguments, Draw, calls
from draftproof.properties.strategies.examples import integers, sampled


@calls()
def draft_extend_inputs(draw: Draw) -> Arguments:
    """Draw requests that accept no draft, some or all; launches of more rows than a block."""
    batch, width = draw(sampled(((1, 4), (3, 2), (5, 3), (40, 4), (131, 1))))
    return {
        "correct_len": bf.unwritten(draw, (batch,), torch.int64),
        "select": bf.unwritten(draw, (batch,), torch.int64),
        "ids": bf.unwritten(draw, (batch * width,), torch.int64),
        "accept_lens": bf.index(draw, bf.numbers(draw, (batch,), width, 1)),
        "predict": bf.index(draw, bf.numbers(draw, (batch * width,), 999)),
        "width": width,
    }


@calls()
def rotate_ids(draw: Draw) -> Arguments:
    """Draw windows of no token, one, several, and of more than a block, with the new token at the end or before it."""
    lengths = draw(st.lists(sampled((0, 1, 2, 3, 5, 8, 9, 17, 40)), min_size=1, max_size=5))
    starts = [draw(integers(0, 2))]
    for length in lengths:
        starts.append(starts[-1] + length)
    at_end = draw(st.booleans())
    select = [
        start + (length - 1 if at_end or not length else draw(integers(0, length - 1)))
        for start, length in zip(starts, lengths, strict=False)
    ]
    ids = bf.numbers(draw, (starts[-1] + draw(integers(1, 3)),), 999)
    return {
        "ids": bf.index(draw, ids),
        "starts": bf.index(draw, starts[:-1]),
        "lengths": bf.index(draw, lengths),
        "tokens": bf.index(draw, bf.numbers(draw, (len(lengths),), 1999, 1000)),
        "select": bf.index(draw, select),
    }


@calls()
def sample_indices(draw: Draw) -> Arguments:
    """Draw requests without drafts, and with some of which none, some or all were right."""
    batch = draw(integers(1, 6))
    drafts = bf.numbers(draw, (batch,), 4)
    drafts[draw(integers(0, batch - 1))] = 0
    # Of requests without drafts, some sample nothing: what is left of their prompts is longer than a step.
    valid = torch.minimum(bf.numbers(draw, (batch,), 5, 1), drafts + 1) - bf.numbers(draw, (batch,), 1) * (drafts == 0)
    extra = bf.numbers(draw, (batch,), 3) * (drafts == 0)
    return {
        "indices": bf.unwritten(draw, (batch,), torch.int64),
        "rejected": bf.unwritten(draw, (batch,), torch.int64),
        "cu_drafts": bf.index(draw, drafts.cumsum(0)),
        "valid": bf.index(draw, valid),
        "cu_tokens": bf.index(draw, torch.cat((torch.zeros(1, dtype=torch.int64), (drafts + 1 + extra).cumsum(0)))),
    }


@calls()
def next_tokens(draw: Draw) -> Arguments:
    """Draw rows of which nothing, something or all is valid, and discarded ones."""
    batch, width = bf.distinct(draw, 2, 9)
    vocabulary = 50
    sampled = bf.numbers(draw, (batch, width), vocabulary - 1)
    valid = bf.numbers(draw, (batch,), width)
    sampled[torch.arange(width) >= valid[:, None]] = -1
    return {
        "next": bf.unwritten(draw, (batch,), torch.int64),
        "valid": bf.unwritten(draw, (batch,), torch.int64),
        "sampled": bf.index(draw, sampled),
        "discard": bf.index(draw, bf.numbers(draw, (batch,), 3) == 0),
        "backup": bf.index(draw, bf.numbers(draw, (batch,), vocabulary - 1)),
        "vocabulary": vocabulary,
    }


@calls()
def step_slots(draw: Draw) -> Arguments:
    """Draw positions inside a page, at its end, and at the end of the longest request; rows that are padding."""
    batch, pages, page_size = bf.distinct(draw, 3)
    most = draw(integers(1, pages * page_size))
    positions = bf.numbers(draw, (batch,), most - 1)
    positions[draw(integers(0, batch - 1))] = most - 1
    table = torch.randperm(batch * pages, generator=torch.Generator().manual_seed(draw(integers(0, 2**32 - 1))))
    return {
        "positions": bf.unwritten(draw, (batch,), torch.int64),
        "slots": bf.unwritten(draw, (batch + draw(integers(0, 3)),), torch.int64),
        "seq_lens": bf.index(draw, positions + 1),
        "before": bf.index(draw, positions),
        "page_table": bf.index(draw, table.reshape(batch, pages)),
        "page_size": page_size,
        "max_len": most,
    }


@calls()
def expand_values(draw: Draw) -> Arguments:
    """Draw requests of no token, one and several; values that are replaced."""
    batch = draw(integers(1, 6))
    counts = bf.numbers(draw, (batch,), 5)
    counts[draw(integers(0, batch - 1))] = 0
    room = int(counts.sum()) + draw(integers(1, 3))
    return {
        "out": bf.unwritten(draw, (room,), torch.int64),
        "values": bf.index(draw, bf.numbers(draw, (batch,), 3)),
        "cu_tokens": bf.index(draw, counts.cumsum(0)),
        "old": draw(integers(0, 3)),
        "new": draw(integers(0, 9)),
    }
