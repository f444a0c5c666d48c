"""Calls of penalties. `B` rows of a launch, `W` verify width, `R` request rows, `V` vocabulary."""

from __future__ import annotations

import torch

from draftproof.properties.choose import Choose
from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import ANY, Arguments, Sizes, calls


@calls()
def apply_penalties(choose: Choose, aim: Sizes = ANY) -> Arguments:
    """Choose chains and trees of few tokens, some of which have been counted; logits above 0, below it, and at it.

    Ids outside the vocabulary, as padding has them, are not counted. In a large vocabulary the tokens are near a
    block's border or the end.
    """
    batch, width, rows, vocabulary = bf.distinct(choose, "batch", "width", "requests", "vocabulary", aim=aim)
    batch, width = aim.get("batch", min(batch, 5)), max(width, 2)
    shape = (batch, width)
    is_chain = choose.boolean()
    above = [
        [row - 1 if is_chain or not row else choose.integer(0, row - 1) for row in range(width)] for _ in range(batch)
    ]
    few = vocabulary if choose.boolean() else min(vocabulary, 2)
    near = min(few, 9)
    ids = (
        bf.numbers(choose, shape, near - 1) if choose.one_of((True, True, False)) else bf.numbers(choose, shape, 9, -2)
    )
    if vocabulary > near:
        borders = [at - 4 for at in (512, 1024, 2048) if at + 4 < vocabulary]
        ids += choose.one_of((0, *borders, vocabulary - 9, vocabulary - 9))
    amounts = (0, 1, -1, 1 << 23, -(1 << 24), 5 << 20)
    most = choose.one_of((1 << 24, 40))
    biases = bf.numbers(choose, (rows, vocabulary), 1 << 24, -(1 << 24)) * bf.numbers(choose, (rows, vocabulary), 1)
    repetitions = [choose.one_of((16, 20, 32, 7, 1, 256, 0, -3)) for _ in range(batch)]
    if aim:
        repetitions[-1] = 20
    return {
        "logits": bf.place(choose, bf.numbers(choose, (*shape, vocabulary), most, choose.one_of((-most, 0)))),
        "input_ids": bf.index(choose, ids),
        "parents": bf.index(choose, above),
        "req_rows": bf.index(choose, bf.numbers(choose, (batch,), rows - 1)),
        "prompt_counts": bf.place(choose, (bf.numbers(choose, (rows, vocabulary), 4) - 2).clamp(min=0)),
        "output_counts": bf.place(choose, (bf.numbers(choose, (rows, vocabulary), 4) - 2).clamp(min=0)),
        "biases": bf.place(choose, biases * choose.integer(0, 1)),
        "repetitions": bf.index(choose, repetitions),
        "frequencies": bf.place(choose, torch.tensor([choose.one_of(amounts) for _ in range(batch)])),
        "presences": bf.place(choose, torch.tensor([choose.one_of(amounts) for _ in range(batch)])),
    }
