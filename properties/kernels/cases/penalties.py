"""Calls of penalties. `B` rows of a launch, `W` verify width, `R` request rows, `V` vocabulary."""

from __future__ import annotations

import torch

from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import Arguments, Draw, calls
from draftproof.properties.strategies.examples import integers, sampled

_LARGE = 2100


@calls()
def apply_penalties(draw: Draw, large: bool = False) -> Arguments:
    """Draw chains and trees of few tokens, of which some have been counted; logits on both sides of 0, and at it.

    Tokens that are in no vocabulary, as ids of padding, are none. Large: a vocabulary of several blocks.
    """
    batch, width, rows, vocabulary = bf.distinct(draw, 4, 9)
    batch, width = min(batch, 5), max(width, 2)
    shape = (batch, width)
    chain = draw(sampled((True, False)))
    above = [
        [row - 1 if chain or not row else draw(integers(0, row - 1)) for row in range(width)] for _ in range(batch)
    ]
    few = vocabulary if draw(sampled((True, False))) else min(vocabulary, 2)
    ids = bf.numbers(draw, shape, few - 1) if draw(sampled((True, True, False))) else bf.numbers(draw, shape, 9, -2)
    if large:
        ids, vocabulary = ids + draw(sampled((0, 1020, _LARGE - 9))), _LARGE
    amounts = sampled((0, 1, -1, 1 << 23, -(1 << 24), 5 << 20))
    most = draw(sampled((1 << 24, 40)))
    biases = bf.numbers(draw, (rows, vocabulary), 1 << 24, -(1 << 24)) * bf.numbers(draw, (rows, vocabulary), 1)
    return {
        "logits": bf.place(draw, bf.numbers(draw, (*shape, vocabulary), most, draw(sampled((-most, 0))))),
        "input_ids": bf.index(draw, ids),
        "parents": bf.index(draw, above),
        "req_rows": bf.index(draw, bf.numbers(draw, (batch,), rows - 1)),
        "prompt_counts": bf.place(draw, (bf.numbers(draw, (rows, vocabulary), 4) - 2).clamp(min=0)),
        "output_counts": bf.place(draw, (bf.numbers(draw, (rows, vocabulary), 4) - 2).clamp(min=0)),
        "biases": bf.place(draw, biases * draw(sampled((0, 1)))),
        "repetitions": bf.index(draw, [draw(sampled((16, 20, 32, 7, 1, 256, 0, -3))) for _ in range(batch)]),
        "frequencies": bf.place(draw, torch.tensor([draw(amounts) for _ in range(batch)])),
        "presences": bf.place(draw, torch.tensor([draw(amounts) for _ in range(batch)])),
    }
