"""Calls of the draws. `T` tokens, `V` vocabulary."""

import torch
from hypothesis import strategies as st

from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import Arguments, Draw, calls

_MOST = (1 << 30) + (1 << 17)


@calls()
def sampled_choice(draw: Draw, large: bool = False) -> Arguments:
    """Draw weights with zeros, ties and one that is all there is; drafts that are heavy, or of no weight, or not there.

    Large: a vocabulary of several blocks, sums up to the largest.
    """
    tokens, vocabulary = bf.distinct(draw, 2, 20)
    few = st.sampled_from((0, 0, 1, 2, 1 << 18))
    rows = [[draw(few) for _ in range(vocabulary)] for _ in range(tokens)]
    for row in rows:
        if draw(st.integers(0, 3)):
            row[draw(st.integers(0, vocabulary - 1))] += 1 << draw(st.integers(0, 20))
    if large:
        rows = [_spread(draw, row) for row in rows]
    best = [row.index(max(row)) for row in rows]
    drafts = [draw(st.sampled_from((-1, heaviest, draw(st.integers(0, len(rows[0]) - 1))))) for heaviest in best]
    return {
        "token_ids": bf.index(draw, [draw(st.integers(0, 99)) for _ in rows]),
        "weights": bf.place(draw, torch.tensor(rows)),
        "drafts": bf.index(draw, drafts),
        "seeds": bf.index(draw, [draw(st.integers(0, (1 << 63) - 1)) for _ in rows]),
        "positions": bf.index(draw, [draw(st.integers(0, 1 << 20)) for _ in rows]),
    }


def _spread(draw: Draw, row: list[int]) -> list[int]:
    """Return the weights of a row somewhere in a vocabulary of three thousand, with the largest sum there may be."""
    spread = [0] * 3000
    for weight in row:
        spread[draw(st.integers(0, len(spread) - 1))] = weight
    if sum(spread):
        spread[draw(st.integers(0, len(spread) - 1))] += _MOST - sum(spread)
    return spread
