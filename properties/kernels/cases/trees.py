"""Calls of decisions on draft trees. `B` rows of a launch, `W` verify width, `T` tokens, `V` vocabulary."""

import torch

from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import Arguments, Draw, calls, floats
from draftproof.properties.strategies.examples import integers, sampled

_APART = 1024
"""Tokens of a large vocabulary that one program has at most."""


@calls(floats)
def best_choices(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw whole numbers, few of them in half of the rows, so that most are equal; down to as many as are chosen.

    Large: three of a row are the highest, far apart, so that programs choose among equals of others.
    """
    tokens, topk = draw(integers(0, 6)), draw(integers(1, 8))
    vocabulary = topk + draw(sampled((0, 1, 5, 40, 1100)))
    if large:
        tokens, vocabulary = tokens % 3 + 1, 3 * _APART
    values = bf.numbers(draw, (tokens, vocabulary), draw(sampled((3, 200)))) - 1
    if large:
        for row in values:
            row[[part * _APART + draw(integers(0, _APART - 1)) for part in range(3)]] = 200
    return {
        "token_ids": bf.unwritten(draw, (tokens, topk), torch.int64),
        "scores": bf.unwritten(draw, (tokens, topk), torch.float64),
        "logits": bf.place(draw, values.to(dtype)),
    }


@calls()
def accept_tree(draw: Draw) -> Arguments:
    """Draw trees of few tokens, with surplus and padding rows; more room for the walk than levels, and less."""
    batch, width = draw(integers(1, 5)), draw(integers(1, 9))
    parents = [[draw(integers(0, row)) for row in range(width - 1)] for _ in range(batch)]
    few = draw(sampled((2, 3, 4)))
    return {
        "correct_len": bf.unwritten(draw, (batch,), torch.int64),
        "bonus": bf.unwritten(draw, (batch,), torch.int64),
        "accept_index": bf.unwritten(draw, (batch, draw(integers(1, width + 1))), torch.int64),
        "input_ids": bf.index(draw, bf.numbers(draw, (batch, width), few)),
        "target_tokens": bf.index(draw, bf.numbers(draw, (batch, width), few)),
        "parents": bf.index(draw, torch.tensor(parents, dtype=torch.int64).view(batch, width - 1)),
        "num_drafts": bf.index(draw, [draw(integers(-1, width - 1)) for _ in range(batch)]),
    }
