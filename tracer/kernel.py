"""Attention that finds one distance: amplitudes of the rotary frequencies, and the margins of the scores.

A query is its key turned back by the distance D, so the score of a key at distance d is the sum of a_f cos(w_f (d - D))
over the rotary frequencies w_f, with the a_f summing to the scale. What is found has the scale as its score, a key
elsewhere at least `valley` of the scale less, and the first row, wherever it is, half of that less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""The relative error of rounding once."""
_STEPS, _LARGEST = 3000, 4096.0
_ROUNDED = 16
"""Roundings between two scores: those of a weight, of its product, of a cosine and of the turned sum, for the query and
for the key, of either score."""


@dataclass(frozen=True)
class DistanceKernel:
    """Amplitudes by frequency that sum to 1, and the scale of the scores.

    `gap` is what is left of the margin between scores when they are rounded, `needed` what must be left.
    """

    frequencies: np.ndarray
    amplitudes: np.ndarray
    valley: float
    scale: float
    gap: float
    needed: float


@cache
def kernel(rotary: int, theta: float, length: int, dtype: str, *, spare: bool) -> DistanceKernel:
    """Return the kernel of widest margin for distances below a length; `spare` leaves the slowest frequency out."""
    frequencies = theta ** (-np.arange(0, rotary, 2) / rotary)
    amplitudes, valley = _widest(frequencies[: len(frequencies) - spare], length)
    # The rest of the attention, twice, must vanish when a bit is rounded, or lie far below what a table takes for one.
    needed = math.log(8 * length / max(ROUNDING[dtype], 2.0**-20))
    # On a frequency that is spared, the first row's score falls as the cosine of its distance.
    fall = 1 - math.cos(min(math.pi, frequencies[-1] * length)) if spare else 0.0
    share = valley / 2 - fall - _ROUNDED * ROUNDING[dtype]
    scale = min(2.0 ** math.ceil(math.log2(needed / max(share, 1e-9))), _LARGEST)
    return DistanceKernel(frequencies, np.append(amplitudes, [0.0] * spare), valley, scale, share * scale, needed)


def _widest(frequencies: np.ndarray, length: int) -> tuple[np.ndarray, float]:
    """Maximise the smallest sum of a_f (1 - cos(w_f d)) over distances: a game, which multiplicative weights solve."""
    losses = 1 - np.cos(np.outer(np.arange(1, max(length, 2)), frequencies))
    total, counts = np.zeros(len(losses)), np.zeros(len(frequencies))
    for step in range(1, _STEPS + 1):
        weights = np.exp(-2 / math.sqrt(step) * (total - total.min()))
        best = (weights @ losses).argmax()
        total += losses[:, best]
        counts[best] += 1
    amplitudes = counts / counts.sum()
    return amplitudes, float((losses @ amplitudes).min())
