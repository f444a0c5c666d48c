"""Calls of ops that hand out slots. `B` rows of a launch, `R` requests and `J` positions of the request table."""

from __future__ import annotations

import torch

from draftproof.properties.choose import Choose
from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import ANY, Arguments, Sizes, calls

# Positions of a row, and most that a request gets: kernels copy them in blocks of 32 to 128.
_POSITIONS = (7, 12, 40, 150)


def _table(choose: Choose, batch: int, most: int) -> tuple[Arguments, torch.Tensor]:
    """Return a request table of distinct slots with rows of it, and a start for each that leaves `most` positions."""
    requests, positions = batch + choose.integer(0, 3), most + choose.integer(0, 9)
    shuffle = bf.generator(choose)
    table = torch.randperm(requests * positions, generator=shuffle).reshape(requests, positions)
    starts = bf.numbers(choose, (batch,), positions - most)
    starts[choose.integer(0, batch - 1)] = choose.one_of((0, positions - most))
    rows = torch.randperm(requests, generator=shuffle)[:batch]
    return {
        "table": bf.index(choose, table),
        "rows": bf.index(choose, rows),
        "starts": bf.index(choose, starts),
    }, starts


@calls()
def extend_slots(choose: Choose, _aim: Sizes = ANY) -> Arguments:
    """Choose requests that get none, one, several, or more than a block; more room than is filled."""
    batch, most = choose.integer(1, 6), choose.one_of(_POSITIONS)
    given, starts = _table(choose, batch, most)
    lengths = bf.numbers(choose, (batch,), most)
    lengths[choose.integer(0, batch - 1)] = choose.one_of((0, 1, most))
    room = int(lengths.sum()) + choose.integer(1, 5)
    return {
        "slots": bf.unwritten(choose, (room,), torch.int64),
        **given,
        "ends": bf.index(choose, starts + lengths),
    }


@calls()
def uniform_slots(choose: Choose, _aim: Sizes = ANY) -> Arguments:
    """Choose counts from one to more than a block; more room than is filled."""
    batch, count = choose.integer(1, 6), choose.one_of((1, 2, 5, *_POSITIONS))
    given, _ = _table(choose, batch, count)
    return {
        "slots": bf.unwritten(choose, (batch * count + choose.integer(1, 5),), torch.int64),
        **given,
        "count": count,
    }


@calls()
def bonus_tokens(choose: Choose, _aim: Sizes = ANY) -> Arguments:
    """Choose requests that accept no draft, some or all."""
    batch, width = bf.distinct(choose, "batch", "width")
    return {
        "bonus": bf.unwritten(choose, (batch,), torch.int64),
        "tokens": bf.index(choose, bf.numbers(choose, (batch, width), 99)),
        "accept_lens": bf.index(choose, bf.numbers(choose, (batch,), width, 1)),
    }
