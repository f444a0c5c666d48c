"""Calls of ops that hand out slots. `B` rows of a launch, `R` requests and `J` positions of the request table."""

from __future__ import annotations

import torch

from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import Arguments, Draw, calls
from draftproof.properties.strategies.examples import integers, sampled

# Positions of a row, and most that a request gets: kernels copy them in blocks of 32 to 128.
_POSITIONS = (7, 12, 40, 150)


def _table(draw: Draw, batch: int, most: int) -> tuple[Arguments, torch.Tensor]:
    """Return a request table of distinct slots with rows of it, and a start for each that leaves `most` positions."""
    requests, positions = batch + draw(integers(0, 3)), most + draw(integers(0, 9))
    shuffle = torch.Generator().manual_seed(draw(integers(0, 2**32 - 1)))
    table = torch.randperm(requests * positions, generator=shuffle).reshape(requests, positions)
    starts = bf.numbers(draw, (batch,), positions - most)
    starts[draw(integers(0, batch - 1))] = draw(sampled((0, positions - most)))
    rows = torch.randperm(requests, generator=shuffle)[:batch]
    return {"table": bf.index(draw, table), "rows": bf.index(draw, rows), "starts": bf.index(draw, starts)}, starts


@calls()
def extend_slots(draw: Draw) -> Arguments:
    """Draw requests that get none, one, several, or more than a block; more room than is filled."""
    batch, most = draw(integers(1, 6)), draw(sampled(_POSITIONS))
    given, starts = _table(draw, batch, most)
    lengths = bf.numbers(draw, (batch,), most)
    lengths[draw(integers(0, batch - 1))] = draw(sampled((0, 1, most)))
    room = int(lengths.sum()) + draw(integers(1, 5))
    return {
        "slots": bf.unwritten(draw, (room,), torch.int64),
        **given,
        "ends": bf.index(draw, starts + lengths),
    }


@calls()
def uniform_slots(draw: Draw) -> Arguments:
    """Draw counts from one to more than a block; more room than is filled."""
    batch, count = draw(integers(1, 6)), draw(sampled((1, 2, 5, *_POSITIONS)))
    given, _ = _table(draw, batch, count)
    return {
        "slots": bf.unwritten(draw, (batch * count + draw(integers(1, 5)),), torch.int64),
        **given,
        "count": count,
    }


@calls()
def bonus_tokens(draw: Draw) -> Arguments:
    """Draw requests that accept no draft, some or all."""
    batch, width = bf.distinct(draw, 2)
    return {
        "bonus": bf.unwritten(draw, (batch,), torch.int64),
        "tokens": bf.index(draw, bf.numbers(draw, (batch, width), 99)),
        "accept_lens": bf.index(draw, bf.numbers(draw, (batch,), width, 1)),
    }
