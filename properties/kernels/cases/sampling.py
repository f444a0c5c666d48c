"""Calls of the draws. `T` tokens, `K` drafts for one place, `V` vocabulary."""

from __future__ import annotations

from typing import NamedTuple

import torch
from hypothesis import strategies as st

from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import Arguments, Draw, calls

_MOST = (1 << 30) + (1 << 17)
_WORD = (1 << 32) - 1
_LARGE = 3000
_MANY = 20
_TRIES = 64
_SIBLINGS = 3


class _Row(NamedTuple):
    """One token's weights [V], its drafts [K], of which -1 is none, and what its random numbers are of."""

    weights: list[int]
    drafts: list[int]
    seed: int
    position: int


@calls()
def sampled_choice(draw: Draw, large: bool = False) -> Arguments:
    """Draw rows of few weights, of none, and of weights whose sums end just at a coin or just behind it.

    Large: a vocabulary of several blocks.
    """
    tokens, vocabulary = bf.distinct(draw, 2, 20)
    kinds = st.sampled_from((_few, _few, _aimed, _aimed, _none, _siblings))
    tokens += draw(st.sampled_from((_MANY, _MANY, 0)))
    columns = draw(st.sampled_from((1, _SIBLINGS)))
    rows = [draw(kinds)(draw, vocabulary, columns) for _ in range(tokens)]
    if large:
        rows = [one for row in rows for one in _spread(draw, row)]
    return {
        "token_ids": bf.index(draw, [draw(st.integers(0, 99)) for _ in rows]),
        "weights": bf.place(draw, torch.tensor([row.weights for row in rows])),
        "drafts": bf.index(draw, [row.drafts + [-1] * (columns - len(row.drafts)) for row in rows]),
        "seeds": bf.index(draw, [row.seed for row in rows]),
        "positions": bf.index(draw, [row.position for row in rows]),
    }


@calls()
def rejection_choice(draw: Draw, large: bool = False) -> Arguments:
    """Draw rows whose drafts have more or less weight than the target gives them, or none, and rows without any.

    Sums are small, so that a coin that is off by one shows, or the largest.
    """
    tokens, vocabulary = bf.distinct(draw, 2, 12)
    tokens += draw(st.sampled_from((_MANY, _MANY, 0)))
    kinds = st.sampled_from((_few, _few, _small, _none))
    rows, drawn = ([draw(kinds)(draw, vocabulary, 1) for _ in range(tokens)] for _ in range(2))
    drawn = [row._replace(drafts=own.drafts) for row, own in zip(drawn, rows, strict=True)]
    if large:
        spread = [_spread(draw, row, other) for row, other in zip(rows, drawn, strict=True)]
        rows, drawn = ([pair[side] for pair in spread] for side in range(2))
    return {
        "token_ids": bf.index(draw, [draw(st.integers(0, 99)) for _ in rows]),
        "weights": bf.place(draw, torch.tensor([row.weights for row in rows])),
        "draft_weights": bf.place(draw, torch.tensor([row.weights for row in drawn])),
        "drafts": bf.index(draw, [row.drafts[0] for row in rows]),
        "seeds": bf.index(draw, [row.seed for row in rows]),
        "positions": bf.index(draw, [row.position for row in rows]),
    }


def _small(draw: Draw, vocabulary: int, _columns: int) -> _Row:
    """Return weights of which the largest is three, and any draft."""
    weights = [draw(st.integers(0, 3)) for _ in range(vocabulary)]
    return _Row(weights, [draw(st.integers(0, vocabulary - 1))], *_place(draw))


def _place(draw: Draw) -> tuple[int, int]:
    """Return a seed, whose highest bit is set for drafts that are drawn (S-SAMPLE-9), and a position."""
    return draw(st.integers(-(1 << 63), (1 << 63) - 1)), draw(st.integers(0, 1 << 20))


def _few(draw: Draw, vocabulary: int, columns: int) -> _Row:
    """Return weights with zeros and ties, and drafts: the heaviest, or any, or none, or one behind them all."""
    few = st.sampled_from((0, 0, 1, 2, 1 << 18))
    weights = [draw(few) for _ in range(vocabulary)]
    if draw(st.integers(0, 3)):
        weights[draw(st.integers(0, vocabulary - 1))] += 1 << draw(st.integers(0, 20))
    drafts = [-1, weights.index(max(weights)), draw(st.integers(0, vocabulary - 1)), vocabulary]
    chosen = draw(st.lists(st.sampled_from(drafts), min_size=1, max_size=columns))
    return _Row(weights, _distinct(chosen), *_place(draw))


def _siblings(draw: Draw, vocabulary: int, columns: int) -> _Row:
    """Return as many drafts as there are columns, of any order, that share the weights: who is asked first matters."""
    drafts = draw(st.permutations(range(vocabulary)))[:columns]
    weights = [draw(st.integers(0, 1)) for _ in range(vocabulary)]
    for draft in drafts:
        weights[draft] = draw(st.integers(3, 9))
    return _Row(weights, drafts, *_place(draw))


def _none(draw: Draw, vocabulary: int, _columns: int) -> _Row:
    """Return no weights at all, beside a draft or none."""
    return _Row([0] * vocabulary, [draw(st.integers(-1, vocabulary - 1))], *_place(draw))


def _distinct(drafts: list[int]) -> list[int]:
    """Return the drafts with -1 in place of those that stand there already."""
    return [draft if draft not in drafts[:place] else -1 for place, draft in enumerate(drafts)]


def _aimed(draw: Draw, vocabulary: int, columns: int) -> _Row:
    """Return weights for which a coin that is off by one chooses another token, often with the largest sum.

    Of several drafts, the running sum up to one of them is at the coin.
    """
    total = draw(st.sampled_from((_MOST, _MOST, 1 << 30, draw(st.integers(1, 9)))))
    token = draw(st.integers(0, vocabulary - 1))
    has_draft = draw(st.sampled_from((True, False, True)))
    others = [other for other in range(vocabulary) if not has_draft or other != token]
    siblings: list[int] = []
    if has_draft and len(others) > 2:
        most = min(columns - 1, len(others) - 2)
        siblings = draw(st.lists(st.sampled_from(others), max_size=most, unique=True))
    others = [other for other in others if other not in siblings]
    drafts = [*siblings, token] if has_draft else [draw(st.sampled_from((-1, vocabulary)))]
    seed, position = _place(draw)
    position = _with_carry(seed, position, int(not has_draft), total)
    if len(others) < 2:
        return _Row([total] + [0] * (vocabulary - 1), drafts, seed, position)
    asked = min(total, _coin(seed, position, 0, total) + draw(st.integers(0, 1))) if has_draft else 0
    weights = [0] * vocabulary
    weights[token], elder = asked, draw(st.integers(0, len(siblings)))
    if elder < len(siblings):
        # A sibling before it or behind it: of one that is before, the coin has to be a sum's.
        weights[siblings[elder]] = part = draw(st.sampled_from((0, 1, asked // 2)))
        weights[token] = max(0, asked - part)
    own = sum(weights)
    before = min(total - own, _coin(seed, position, 1, total - own) + draw(st.integers(0, 1)))
    place = draw(st.integers(1, len(others) - 1))
    weights[others[draw(st.just(0) | st.integers(0, place - 1))]] += before
    weights[others[draw(st.just(len(others) - 1) | st.integers(place, len(others) - 1))]] += total - own - before
    return _Row(weights, draw(st.sampled_from((drafts, drafts[::-1]))), seed, position)


def _with_carry(seed: int, position: int, draw: int, most: int) -> int:
    """Return the first position from this one on at which the low 32 bits decide about the coin, if one is near."""
    near = range(position, position + _TRIES)
    carried = (at for at in near if _coin(seed, at, draw, most) != _coin(seed, at, draw, 1 << 32) * most >> 32)
    return next(carried, position)


def _coin(seed: int, position: int, draw: int, most: int) -> int:
    """Return the number below `most` that docs/semantics.md (S-SAMPLE-4) has for a draw at a position."""
    words, key = [position, draw, 0, 0], [seed & _WORD, seed >> 32 & _WORD]
    for _ in range(10):
        left, right = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [right >> 32 ^ words[1] ^ key[0], right & _WORD, left >> 32 ^ words[3] ^ key[1], left & _WORD]
        key = [key[0] + 0x9E3779B9 & _WORD, key[1] + 0xBB67AE85 & _WORD]
    return (words[0] << 32 | words[1]) * most >> 64


def _spread(draw: Draw, *rows: _Row) -> list[_Row]:
    """Return weights and drafts in the same order in a vocabulary of three thousand, many at blocks' borders.

    Those of several rows are in the same places.
    """
    border = st.builds(int.__add__, st.sampled_from((10, 1024, 2048, _LARGE - 20)), st.integers(-10, 19))
    place = st.one_of(border, border, st.integers(0, _LARGE - 1))
    count = len(rows[0].weights)
    places = [*sorted(draw(st.lists(place, min_size=count, max_size=count, unique=True))), _LARGE]
    return [_placed(row, places) for row in rows]


def _placed(row: _Row, places: list[int]) -> _Row:
    """Return a row whose tokens are at these places of a large vocabulary; the last place is behind all of them."""
    weights = [0] * _LARGE
    for at, weight in zip(places, row.weights, strict=False):
        weights[at] = weight
    return row._replace(weights=weights, drafts=[draft if draft < 0 else places[draft] for draft in row.drafts])
