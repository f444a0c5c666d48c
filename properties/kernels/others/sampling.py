"""Calls of ops of sampled verification. `B` rows of a launch, `T` packed tokens: drafts, `V` vocabulary.

Probabilities are sixty-fourths and random numbers such that no comparison hangs on a rounding.
"""

from __future__ import annotations

import torch

from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import Arguments, Draw, calls
from draftproof.properties.kernels.case import Buffer
from draftproof.properties.strategies.examples import integers, sampled

_PARTS = 64


def _drafts(draw: Draw, most: int, vocabulary: int) -> tuple[int, torch.Tensor, torch.Tensor]:
    """Return requests, the ends of their drafts, and drafts, some of which are none."""
    batch = draw(integers(1, 5))
    counts = bf.numbers(draw, (batch,), most)
    counts[draw(integers(0, batch - 1))] = draw(sampled((0, most)))
    return batch, counts.cumsum(0), bf.numbers(draw, (max(1, int(counts.sum())),), vocabulary - 1)


def _probabilities(draw: Draw, rows: int, vocabulary: int) -> Buffer:
    """Draw rows that sum to one; of some, many entries are zero."""
    step = draw(sampled((1, _PARTS // 4)))
    marks = bf.numbers(draw, (rows, vocabulary - 1), _PARTS // step).sort(1).values * step
    edges = torch.cat((torch.zeros(rows, 1, dtype=torch.int64), marks, torch.full((rows, 1), _PARTS)), 1)
    return bf.place(draw, (edges.diff(dim=1) / _PARTS).float())


@calls()
def rejection_greedy(draw: Draw) -> Arguments:
    """Draw requests of no draft, some and the most, few tokens, so that drafts are right; some that are not greedy."""
    most, vocabulary = draw(integers(1, 5)), 2
    batch, ends, drafts = _drafts(draw, most, vocabulary)
    return {
        "out": bf.unwritten(draw, (batch, most + 1), torch.int64),
        "cu_drafts": bf.index(draw, ends),
        "drafts": bf.index(draw, drafts),
        "target": bf.index(draw, bf.numbers(draw, drafts.shape, vocabulary - 1)),
        "bonus": bf.index(draw, bf.numbers(draw, (batch,), 99, 50)),
        "greedy": bf.index(draw, bf.numbers(draw, (batch,), 4) > 0),
    }


@calls()
def rejection_random(draw: Draw) -> Arguments:
    """Draw as rejection_greedy, with drafts that are padding."""
    most, vocabulary = draw(integers(1, 5)), draw(integers(2, 5))
    batch, ends, drafts = _drafts(draw, most, vocabulary)
    drafts[draw(integers(0, len(drafts) - 1))] = draw(sampled((-1, 0, 1)))
    return {
        "out": bf.unwritten(draw, (batch, most + 1), torch.int64),
        "cu_drafts": bf.index(draw, ends),
        "drafts": bf.index(draw, drafts),
        "draft_probs": _probabilities(draw, len(drafts), vocabulary),
        "target_probs": _probabilities(draw, len(drafts), vocabulary),
        "bonus": bf.index(draw, bf.numbers(draw, (batch,), 99, 50)),
        "recovered": bf.index(draw, bf.numbers(draw, drafts.shape, 49, 40)),
        "uniform": bf.place(draw, bf.numbers(draw, drafts.shape, 7).double() / 8),
        "greedy": bf.index(draw, bf.numbers(draw, (batch,), 4) == 0),
    }


@calls()
def recovered_tokens(draw: Draw) -> Arguments:
    """Draw vocabularies of one block and of several; weights of which many are equal, so that ties are common."""
    most, vocabulary = draw(integers(1, 4)), draw(sampled((2, 5, 9)))
    batch, ends, drafts = _drafts(draw, most, vocabulary)
    return {
        "out": bf.unwritten(draw, (len(drafts),), torch.int64),
        "cu_drafts": bf.index(draw, ends),
        "drafts": bf.index(draw, drafts),
        "draft_probs": _probabilities(draw, len(drafts), vocabulary),
        "target_probs": _probabilities(draw, len(drafts), vocabulary),
        "weights": bf.place(draw, 2.0 ** bf.numbers(draw, (batch, vocabulary), 2, -1).float()),
    }
