"""The choice of a sampled request (docs/semantics/sampling.md, S-SAMPLE), in whole numbers of any size.

`V` vocabulary; weights are a list of V whole numbers with a sum of at least 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from draftproof.properties.values.sampling import Sampling

ACCEPT, DRAW = 0, 1
"""What the two coins of a position are for."""
Coin = Callable[[int, int], int]
"""(draw, M) -> a number below M."""

_WORD = (1 << 32) - 1
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LEVELS, _TOP = 64, 18


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox 4x32-10 of Salmon et al. (2011): four random words of a counter and a key of such words."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        first, second = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
        a, b, c, d = (second >> 32) ^ b ^ k0, second & _WORD, (first >> 32) ^ d ^ k1, first & _WORD
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return a, b, c, d


def coins(seed: int, position: int) -> Coin:
    """Return the coins of the token at a position (S-SAMPLE-4)."""

    def coin(draw: int, most: int) -> int:
        high, low, *_ = philox((position, draw, 0, 0), (seed & _WORD, seed >> 32))
        return ((high << 32 | low) * most) >> 64

    return coin


def sample(weights: list[int], drafts: Sequence[int], coin: Coin) -> int:
    """Return the choice y of a row, given one draft for its place (S-SAMPLE-2), or siblings (S-TREE-11)."""
    rest, asked = list(weights), 0
    for draft in drafts:
        asked += weights[draft]
        if coin(ACCEPT, sum(weights)) < asked:
            return draft
        rest[draft] = 0
    number, below = coin(DRAW, sum(rest)), 0
    for token, weight in enumerate(rest):
        below += weight
        if number < below:
            return token
    raise AssertionError("a coin is below the sum that it is drawn for")


def draft_coins(seed: int, position: int) -> Coin:
    """Return the coins of the draft's own token at a position (S-SAMPLE-9)."""
    return coins(seed | 1 << 63, position)


def rejected_or_not(weights: list[int], drawn_by: list[int], draft: int, coin: Coin) -> int:
    """Return the choice y of a row, given a draft that was drawn by its own weights (S-SAMPLE-10)."""
    total, own = sum(weights), sum(drawn_by)
    if coin(ACCEPT, drawn_by[draft] * total) < weights[draft] * own:
        return draft
    return sample([max(0, p * own - q * total) for p, q in zip(weights, drawn_by, strict=True)], (), coin)


def logprob(weights: list[int], token: int, top: int) -> tuple[int, ...]:
    """Return the logprob values of a chosen token (S-SAMPLE-12).

    Its weight, the sum of all weights, and the `top` heaviest tokens with theirs.
    """
    heaviest = sorted((-weight, other) for other, weight in enumerate(weights) if weight)[:top]
    return (weights[token], sum(weights), *(number for weight, other in heaviest for number in (other, -weight)))


def probe_weights(logits: np.ndarray, sampling: Sampling) -> list[int]:
    """Return the weights of one row of a probe's logits [V] (S-SAMPLE-5), filtered (S-SAMPLE-6)."""
    return list(_weights_of_probe(logits.astype(np.float64).tobytes(), sampling))


@lru_cache(maxsize=1 << 12)
def _weights_of_probe(row: bytes, sampling: Sampling) -> tuple[int, ...]:
    """Return the filtered weights of a probe's row, float64 logits as bytes, which can be a key of the cache."""
    return tuple(filtered(grid_weights(np.frombuffer(row), sampling), sampling))


def grid_weights(logits: np.ndarray, sampling: Sampling) -> list[int]:
    """Return the weights of one row of a probe's logits [V] before filters."""
    below = (logits.max() - logits).astype(np.int64)
    drops = below * _LEVELS * 16 // ((1 << 24) * int(sampling.temperature * 16))
    return [(1 << _TOP) >> drop for drop in drops.tolist()]


def filtered(weights: list[int], sampling: Sampling) -> list[int]:
    """top_k, then top_p, then min_p, each on what the one before left (S-SAMPLE-6)."""
    if sampling.top_k is not None and sampling.top_k < len(weights):
        least = sorted(weights, reverse=True)[sampling.top_k - 1]
        weights = [weight if weight >= least else 0 for weight in weights]
    share, total, before, kept = int(sampling.top_p * 65536), sum(weights), 0, list[int]()
    some = [token for token, weight in enumerate(weights) if weight]
    # The heaviest first; of equals, which a sort leaves as they are, the lowest id.
    for token in sorted(some, key=weights.__getitem__, reverse=True):
        if before * 65536 >= share * total:
            break
        kept.append(token)
        before += weights[token]
    least_share, left = int(sampling.min_p * 65536) * weights[kept[0]], [0] * len(weights)
    for token in kept:
        if weights[token] * 65536 >= least_share:
            left[token] = weights[token]
    return left
