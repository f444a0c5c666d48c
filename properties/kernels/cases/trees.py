"""Calls of decisions on draft trees. `B` rows of a launch, `W` verify width, `T` tokens, `V` vocabulary."""

from __future__ import annotations

import torch

from draftproof.properties.choose import Choose
from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import ANY, Arguments, Sizes, calls, floats


@calls(floats)
def best_choices(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose whole numbers, few of them in half of the rows, so that most are equal; down to as many as are chosen.

    Where a vocabulary is asked for, three of a row are the highest, one in each third; of the last row it is its end.
    """
    tokens, topk = aim.get("tokens", choose.integer(1 if aim else 0, 6)), aim.get("topk", choose.integer(1, 8))
    vocabulary = aim.get("vocabulary", topk + choose.one_of((0, 1, 5, 40, 1100)))
    values = bf.numbers(choose, (tokens, vocabulary), choose.one_of((3, 200))) - 1
    if "vocabulary" in aim:
        third = vocabulary // 3
        for row in values:
            last = choose.one_of((vocabulary - 1, choose.integer(2 * third, vocabulary - 1)))
            row[[choose.integer(0, third - 1), choose.integer(third, 2 * third - 1), last]] = 200
        values[-1, -1] = 201
    return {
        "token_ids": bf.unwritten(choose, (tokens, topk), torch.int64),
        "scores": bf.unwritten(choose, (tokens, topk), torch.float64),
        "logits": bf.place(choose, values.to(dtype)),
    }


@calls()
def accept_tree(choose: Choose, aim: Sizes = ANY) -> Arguments:
    """Choose trees of few tokens, with surplus and padding rows; more room for the walk than levels, and less.

    What is asked for is a chain that is accepted as a whole, in the last row.
    """
    batch, width = aim.get("batch", choose.integer(1, 5)), aim.get("width", choose.integer(1, 9))
    parents = [[choose.integer(0, row) for row in range(width - 1)] for _ in range(batch)]
    few, most = choose.integer(2, 4), choose.integer(1, width + 1)
    ids, targets = (bf.numbers(choose, (batch, width), few) for _ in range(2))
    counts = [choose.integer(-1, width - 1) for _ in range(batch)]
    if aim:
        parents[-1], counts[-1], most = list(range(width - 1)), width - 1, width + choose.integer(0, 1)
        ids[-1, 1:] = targets[-1, :-1]
    return {
        "correct_len": bf.unwritten(choose, (batch,), torch.int64),
        "bonus": bf.unwritten(choose, (batch,), torch.int64),
        "accept_index": bf.unwritten(choose, (batch, most), torch.int64),
        "input_ids": bf.index(choose, ids),
        "target_tokens": bf.index(choose, targets),
        "parents": bf.index(choose, torch.tensor(parents, dtype=torch.int64).view(batch, width - 1)),
        "num_drafts": bf.index(choose, counts),
    }
