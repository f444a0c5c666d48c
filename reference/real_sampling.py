"""Draws of a request beside a real model (docs/semantics/sampling.md, S-SAMPLE-13, S-SAMPLE-14).

Weights come from floats, so that rounding may draw another token: `gap` says how far logits would have to be off for
it. `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from draftproof.properties.values.sampling import Sampling
from draftproof.reference.sampling import ACCEPT, DRAW, coins, filtered, sample

_SUM_BITS = 46
_ALL = 1 << 64
FARTHEST = 1 / 16
"""A token that no smaller error of the logits makes the choice is none that rounding could make it."""
_HALVINGS = 40


def real_weights(logits: np.ndarray, sampling: Sampling) -> list[int]:
    """Return the weights of one row of a real model's logits [V] (S-SAMPLE-13), filtered (S-SAMPLE-6)."""
    return filtered(np.floor(_scaled(logits, sampling)).astype(np.int64).tolist(), sampling)


def _scaled(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    scale = 2.0 ** (_SUM_BITS - (len(logits) - 1).bit_length())
    return scale * np.exp((logits.astype(np.float64) - float(logits.max())) / sampling.temperature)


def least_gap(explains: Callable[[float], bool]) -> float:
    """Return the least gap for which `explains` holds, as it does for every larger one; inf if it never holds."""
    if not explains(FARTHEST):
        return np.inf
    below, enough = 0.0, FARTHEST
    for _ in range(_HALVINGS):
        middle = (below + enough) / 2
        below, enough = (below, middle) if explains(middle) else (middle, enough)
    return below


class Range(NamedTuple):
    """Of every token [V] the least and the most that its weight may be; the least is 0 where it may be filtered out."""

    low: np.ndarray
    high: np.ndarray

    def share(self, tokens: np.ndarray, more: bool) -> float:
        """Return the least share of the total weight that some tokens (a mask) can have; with `more` the largest."""
        ours, theirs = (self.high, self.low) if more else (self.low, self.high)
        part = float(ours[tokens].sum())
        return part / (part + float(theirs[~tokens].sum())) if part else 0.0


class RealRow:
    """A row that is drawn from, for the token at a position, given the drafts that stand there: `logits` [V]."""

    def __init__(self, logits: np.ndarray, sampling: Sampling, drafts: Sequence[int], position: int) -> None:
        self._logits, self._sampling, self._drafts = logits, sampling, tuple(drafts)
        coin = coins(sampling.seed, position)
        # Numbers from 0 to 1, from which every coin of these draws is made.
        self._accepts, self._draws = coin(ACCEPT, _ALL) / _ALL, coin(DRAW, _ALL) / _ALL
        self.token = sample(real_weights(logits, sampling), self._drafts, coin)

    def near(self) -> tuple[tuple[int, float], ...]:
        """Return the other tokens that slightly different logits would choose, nearest first, each with its gap."""
        others = [token for token in np.flatnonzero(self._drawable(FARTHEST)).tolist() if token != self.token]
        return tuple(sorted(((token, self.gap(token)) for token in others), key=lambda one: (one[1], one[0])))

    def gap(self, token: int) -> float:
        """Twice as far as logits have to be off, each of them, to make this token the choice; inf: too far to say.

        Twice, as for the best token of a row to be another the two have to move towards each other.
        """
        return 0.0 if token == self.token else least_gap(lambda gap: bool(self._drawable(gap)[token]))

    def _drawable(self, gap: float) -> np.ndarray:
        """Which tokens [V] are the choice of some logits that are off by at most half the gap."""
        weights = weight_range(self._logits, self._sampling, gap)
        accepts, draws = self._accepts, self._draws
        found, asked = np.zeros(len(self._logits), bool), np.zeros(len(self._logits), bool)
        for draft in self._drafts:
            is_rejected_before = accepts >= weights.share(asked, more=False)
            asked[draft] = True
            found[draft] = is_rejected_before and weights.high[draft] > 0 and accepts < weights.share(asked, more=True)
        if accepts < weights.share(asked, more=False):
            return found
        low, high = np.where(asked, 0, weights.low), np.where(asked, 0, weights.high)
        up_to, before = (each.cumsum() for each in (high, low))
        most, least = up_to + low.sum() - before, before - low + high[::-1].cumsum()[::-1]
        is_reached = draws * least >= before - low
        return found | ((high > 0) & (draws * most < up_to) & is_reached)


def weight_range(logits: np.ndarray, sampling: Sampling, gap: float) -> Range:
    """Return the range of each weight when each logit is off by at most half the gap."""
    scaled, spread = _scaled(logits, sampling), np.exp(gap / 2 / sampling.temperature)
    # Weights are whole: a part is cut off from each, also where the largest is another.
    weights = Range(np.maximum(scaled / spread - spread - 1, 0), scaled * spread)
    return _of_min_p(_of_top_p(_of_top_k(weights, sampling), sampling), sampling)


def _of_top_k(weights: Range, sampling: Sampling) -> Range:
    if sampling.top_k is None or sampling.top_k >= len(weights.low):
        return weights
    low, high = np.sort(weights.low), np.sort(weights.high)
    surely_ahead = len(low) - np.searchsorted(low, weights.high, side="right")
    may_be_ahead = len(high) - np.searchsorted(high, weights.low, side="right") - (weights.high > weights.low)
    return _kept(weights, may_be_ahead < sampling.top_k, surely_ahead < sampling.top_k)


def _of_top_p(weights: Range, sampling: Sampling) -> Range:
    """Whether the sum of what is heavier is below a share of all, at the least and at the most."""
    if sampling.top_p == 1:
        return weights
    low, high = weights
    order = np.argsort(-low, kind="stable")
    ahead = len(low) - np.searchsorted(low[order][::-1], high, side="right")
    surely, theirs = _first(low, order)[ahead], high.sum() - _first(high, order)[ahead]
    least = surely / np.maximum(surely + theirs, 1)
    order = np.argsort(-high, kind="stable")
    ahead = len(high) - np.searchsorted(high[order][::-1], low, side="left")
    maybe, theirs = _first(high, order)[ahead] - high, low.sum() - _first(low, order)[ahead] + low
    most = maybe / np.maximum(maybe + theirs, 1)
    return _kept(weights, most < sampling.top_p, (least < sampling.top_p) | (high >= low.max()))


def _first(weights: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the sums of the first 0, 1, .. weights in an order."""
    return np.concatenate(([0.0], weights[order].cumsum()))


def _of_min_p(weights: Range, sampling: Sampling) -> Range:
    low, high = weights
    return _kept(weights, low >= sampling.min_p * high.max(), high >= sampling.min_p * low.max())


def _kept(weights: Range, surely: np.ndarray, maybe: np.ndarray) -> Range:
    return Range(np.where(surely, weights.low, 0), np.where(maybe, weights.high, 0))
