"""Calls of ops of sampled verification. `B` rows of a launch, `T` packed tokens: drafts, `V` vocabulary.

Probabilities are sixty-fourths, and random numbers are such that no comparison depends on rounding.
"""

from __future__ import annotations

import torch

from draftproof.properties.choose import Choose
from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import ANY, Arguments, Sizes, calls
from draftproof.properties.kernels.case import Buffer

_PARTS = 64


def _drafts(choose: Choose, most: int, vocabulary: int) -> tuple[int, torch.Tensor, torch.Tensor]:
    """Return the number of requests, the ends of their drafts, and the drafts; some requests have none."""
    batch = choose.integer(1, 5)
    counts = bf.numbers(choose, (batch,), most)
    counts[choose.integer(0, batch - 1)] = choose.one_of((0, most))
    return batch, counts.cumsum(0), bf.numbers(choose, (max(1, int(counts.sum())),), vocabulary - 1)


def _probabilities(choose: Choose, rows: int, vocabulary: int) -> Buffer:
    """Choose rows that sum to one; of some, many entries are zero."""
    step = choose.one_of((1, _PARTS // 4))
    marks = bf.numbers(choose, (rows, vocabulary - 1), _PARTS // step).sort(1).values * step
    edges = torch.cat((torch.zeros(rows, 1, dtype=torch.int64), marks, torch.full((rows, 1), _PARTS)), 1)
    return bf.place(choose, (edges.diff(dim=1) / _PARTS).float())


@calls()
def rejection_greedy(choose: Choose, _aim: Sizes = ANY) -> Arguments:
    """Choose requests of no draft, some and the most, few tokens, so that drafts are right; some not greedy."""
    most, vocabulary = choose.integer(1, 5), 2
    batch, ends, drafts = _drafts(choose, most, vocabulary)
    return {
        "out": bf.unwritten(choose, (batch, most + 1), torch.int64),
        "cu_drafts": bf.index(choose, ends),
        "drafts": bf.index(choose, drafts),
        "target": bf.index(choose, bf.numbers(choose, drafts.shape, vocabulary - 1)),
        "bonus": bf.index(choose, bf.numbers(choose, (batch,), 99, 50)),
        "greedy": bf.index(choose, bf.numbers(choose, (batch,), 4) > 0),
    }


@calls()
def rejection_random(choose: Choose, _aim: Sizes = ANY) -> Arguments:
    """Choose as rejection_greedy, with drafts that are padding."""
    most, vocabulary = choose.integer(1, 5), choose.integer(2, 5)
    batch, ends, drafts = _drafts(choose, most, vocabulary)
    drafts[choose.integer(0, len(drafts) - 1)] = choose.one_of((-1, 0, 1))
    return {
        "out": bf.unwritten(choose, (batch, most + 1), torch.int64),
        "cu_drafts": bf.index(choose, ends),
        "drafts": bf.index(choose, drafts),
        "draft_probs": _probabilities(choose, len(drafts), vocabulary),
        "target_probs": _probabilities(choose, len(drafts), vocabulary),
        "bonus": bf.index(choose, bf.numbers(choose, (batch,), 99, 50)),
        "recovered": bf.index(choose, bf.numbers(choose, drafts.shape, 49, 40)),
        "uniform": bf.place(choose, bf.numbers(choose, drafts.shape, 7).double() / 8),
        "greedy": bf.index(choose, bf.numbers(choose, (batch,), 4) == 0),
    }


@calls()
def recovered_tokens(choose: Choose, _aim: Sizes = ANY) -> Arguments:
    """Choose vocabularies of one block and of several; many weights are equal, so that ties are common."""
    most, vocabulary = choose.integer(1, 4), choose.one_of((2, 5, 9))
    batch, ends, drafts = _drafts(choose, most, vocabulary)
    return {
        "out": bf.unwritten(choose, (len(drafts),), torch.int64),
        "cu_drafts": bf.index(choose, ends),
        "drafts": bf.index(choose, drafts),
        "draft_probs": _probabilities(choose, len(drafts), vocabulary),
        "target_probs": _probabilities(choose, len(drafts), vocabulary),
        "weights": bf.place(choose, 2.0 ** bf.numbers(choose, (batch, vocabulary), 2, -1).float()),
    }
