"""Calls of the draws. `T` tokens, `K` drafts for one place, `V` vocabulary."""

from __future__ import annotations

from typing import NamedTuple

import torch

from draftproof.properties.choose import Choose
from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import ANY, Arguments, Sizes, calls

_MOST = (1 << 30) + (1 << 17)
_WORD = (1 << 32) - 1
# A vocabulary of more tokens is a small one that is spread.
_SMALL = 20
_MANY = 20
_TRIES = 64
_SIBLINGS = 3


class _Row(NamedTuple):
    """One token's weights [V], its drafts [K] with -1 for none, and the seed and position of its random numbers."""

    weights: list[int]
    drafts: list[int]
    seed: int
    position: int


@calls()
def sampled_choice(choose: Choose, aim: Sizes = ANY) -> Arguments:
    """Choose rows with few weights, with none, and with weights whose sums end exactly at a coin or just behind it.

    Every row has as many drafts as the aim asks for.
    """
    tokens, vocabulary = bf.distinct(choose, "tokens", "small", high=_SMALL)
    tokens = aim.get("tokens", tokens + (_MANY if aim else choose.one_of((_MANY, _MANY, 0))))
    columns = aim.get("drafts", choose.one_of((1, _SIBLINGS)))
    vocabulary = columns + 5 if "drafts" in aim else vocabulary
    kinds = (_siblings,) if "drafts" in aim else (_few, _few, _aimed, _aimed, _none, _siblings)
    rows = [choose.one_of(kinds)(choose, vocabulary, columns) for _ in range(tokens)]
    if "vocabulary" in aim:
        rows = [one for row in rows for one in _spread(choose, aim["vocabulary"], row)]
    return {
        "token_ids": bf.index(choose, [choose.integer(0, 99) for _ in rows]),
        "weights": bf.place(choose, torch.tensor([row.weights for row in rows])),
        "drafts": bf.index(choose, [row.drafts + [-1] * (columns - len(row.drafts)) for row in rows]),
        "seeds": bf.index(choose, [row.seed for row in rows]),
        "positions": bf.index(choose, [row.position for row in rows]),
    }


@calls()
def rejection_choice(choose: Choose, aim: Sizes = ANY) -> Arguments:
    """Choose rows whose drafts have more weight than the target gives them, less or none, and rows without drafts.

    Sums are small, so that a coin that is off by one shows, or as large as possible.
    """
    tokens, vocabulary = bf.distinct(choose, "tokens", "small", high=12)
    tokens = aim.get("tokens", tokens + (_MANY if aim else choose.one_of((_MANY, _MANY, 0))))
    kinds = (_few, _few, _small, _none)
    rows, drawn = ([choose.one_of(kinds)(choose, vocabulary, 1) for _ in range(tokens)] for _ in range(2))
    drawn = [row._replace(drafts=own.drafts) for row, own in zip(drawn, rows, strict=True)]
    if "vocabulary" in aim:
        pairs = zip(rows, drawn, strict=True)
        spread = [_spread(choose, aim["vocabulary"], row, other) for row, other in pairs]
        rows, drawn = ([pair[side] for pair in spread] for side in range(2))
    return {
        "token_ids": bf.index(choose, [choose.integer(0, 99) for _ in rows]),
        "weights": bf.place(choose, torch.tensor([row.weights for row in rows])),
        "draft_weights": bf.place(choose, torch.tensor([row.weights for row in drawn])),
        "drafts": bf.index(choose, [row.drafts[0] for row in rows]),
        "seeds": bf.index(choose, [row.seed for row in rows]),
        "positions": bf.index(choose, [row.position for row in rows]),
    }


def _small(choose: Choose, vocabulary: int, _columns: int) -> _Row:
    """Return weights up to three, and any draft."""
    weights = [choose.integer(0, 3) for _ in range(vocabulary)]
    return _Row(weights, [choose.integer(0, vocabulary - 1)], *_place(choose))


def _place(choose: Choose) -> tuple[int, int]:
    """Return a seed, with its highest bit set for drafts that are drawn (S-SAMPLE-9), and a position."""
    return bf.any_word(choose), choose.integer(0, 1 << 20)


def _few(choose: Choose, vocabulary: int, columns: int) -> _Row:
    """Return weights with zeros and ties, and drafts: the heaviest, or any, or none, or one behind them all."""
    weights = [choose.one_of((0, 0, 1, 2, 1 << 18)) for _ in range(vocabulary)]
    if choose.integer(0, 3):
        weights[choose.integer(0, vocabulary - 1)] += 1 << choose.integer(0, 20)
    drafts = [-1, weights.index(max(weights)), choose.integer(0, vocabulary - 1), vocabulary]
    chosen = [choose.one_of(drafts) for _ in range(choose.integer(1, columns))]
    return _Row(weights, _distinct(chosen), *_place(choose))


def _siblings(choose: Choose, vocabulary: int, columns: int) -> _Row:
    """Return one draft a column, in any order, which share the weights: the order in which they are tried matters."""
    drafts = bf.shuffled(choose, range(vocabulary))[:columns]
    weights = [choose.integer(0, 1) for _ in range(vocabulary)]
    for draft in drafts:
        weights[draft] = choose.integer(3, 9)
    return _Row(weights, drafts, *_place(choose))


def _none(choose: Choose, vocabulary: int, _columns: int) -> _Row:
    """Return no weights at all, beside a draft or none."""
    return _Row([0] * vocabulary, [choose.integer(-1, vocabulary - 1)], *_place(choose))


def _distinct(drafts: list[int]) -> list[int]:
    """Return the drafts with -1 in place of those that stand there already."""
    return [draft if draft not in drafts[:place] else -1 for place, draft in enumerate(drafts)]


def _aimed(choose: Choose, vocabulary: int, columns: int) -> _Row:
    """Return weights for which a coin that is off by one chooses another token, often with the largest sum.

    Of several drafts, the running sum up to one of them is at the coin.
    """
    total = choose.one_of((_MOST, _MOST, 1 << 30, choose.integer(1, 9)))
    token = choose.integer(0, vocabulary - 1)
    has_draft = choose.one_of((True, False, True))
    others = [other for other in range(vocabulary) if not has_draft or other != token]
    siblings: list[int] = []
    if has_draft and len(others) > 2:
        siblings = bf.several(choose, others, 0, min(columns - 1, len(others) - 2))
    others = [other for other in others if other not in siblings]
    drafts = [*siblings, token] if has_draft else [choose.one_of((-1, vocabulary))]
    seed, position = _place(choose)
    position = _with_carry(seed, position, int(not has_draft), total)
    if len(others) < 2:
        return _Row([total] + [0] * (vocabulary - 1), drafts, seed, position)
    asked = min(total, _coin(seed, position, 0, total) + choose.integer(0, 1)) if has_draft else 0
    weights = [0] * vocabulary
    weights[token], elder = asked, choose.integer(0, len(siblings))
    if elder < len(siblings):
        # A sibling before it or behind it: of one that is before, the coin has to be a sum's.
        weights[siblings[elder]] = part = choose.one_of((0, 1, asked // 2))
        weights[token] = max(0, asked - part)
    own = sum(weights)
    before = min(total - own, _coin(seed, position, 1, total - own) + choose.integer(0, 1))
    place = choose.integer(1, len(others) - 1)
    weights[others[choose.one_of((0, choose.integer(0, place - 1)))]] += before
    weights[others[choose.one_of((len(others) - 1, choose.integer(place, len(others) - 1)))]] += total - own - before
    return _Row(weights, choose.one_of((drafts, drafts[::-1])), seed, position)


def _with_carry(seed: int, position: int, draw: int, most: int) -> int:
    """Return the first position from this one on at which the low 32 bits decide about the coin, if one is near."""
    near = range(position, position + _TRIES)
    carried = (at for at in near if _coin(seed, at, draw, most) != _coin(seed, at, draw, 1 << 32) * most >> 32)
    return next(carried, position)


def _coin(seed: int, position: int, draw: int, most: int) -> int:
    """Return the number below `most` that docs/semantics/sampling.md (S-SAMPLE-4) has for a draw at a position."""
    words, key = [position, draw, 0, 0], [seed & _WORD, seed >> 32 & _WORD]
    for _ in range(10):
        left, right = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [right >> 32 ^ words[1] ^ key[0], right & _WORD, left >> 32 ^ words[3] ^ key[1], left & _WORD]
        key = [key[0] + 0x9E3779B9 & _WORD, key[1] + 0xBB67AE85 & _WORD]
    return (words[0] << 32 | words[1]) * most >> 64


def _spread(choose: Choose, vocabulary: int, *rows: _Row) -> list[_Row]:
    """Return weights and drafts in the same order in a large vocabulary, many at blocks' borders and at its end.

    The tokens of all the rows are in the same places.
    """
    borders = [at for at in (10, 512, 1024, 2048, vocabulary - 20) if at + 20 <= vocabulary]
    places, count = {vocabulary - 1}, len(rows[0].weights)
    while len(places) < count:
        border = choose.one_of(borders) + choose.integer(-10, 19)
        places.add(choose.one_of((border, border, choose.integer(0, vocabulary - 1))))
    at = [*sorted(places), vocabulary]
    return [_placed(row, at, vocabulary) for row in rows]


def _placed(row: _Row, places: list[int], vocabulary: int) -> _Row:
    """Return a row with its tokens at these places of a large vocabulary; the last place lies behind all of them."""
    weights = [0] * vocabulary
    for at, weight in zip(places, row.weights, strict=False):
        weights[at] = weight
    return row._replace(weights=weights, drafts=[draft if draft < 0 else places[draft] for draft in row.drafts])
