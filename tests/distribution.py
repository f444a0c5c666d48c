"""Whether counts come from a distribution: a G-test with bounds that hold for every number of draws.

`T` draws, of which each of `J` cells has a count. scipy has the test with its limit for large counts only, and a false
alarm in 10^9 is far beyond where that limit is good.
"""

import math

import numpy as np


def statistic(counts: np.ndarray, law: np.ndarray) -> float:
    """Return G = 2 sum of n log(n / (T p)) of counts n [J] under probabilities p [J]; infinite outside of these."""
    seen = counts > 0
    if not law[seen].all():
        return math.inf
    return float(2 * (counts[seen] * np.log(counts[seen] / (counts.sum() * law[seen]))).sum())


def tail(g: float, cells: int) -> float:
    """Return a bound of how probable at least this G is, of any number of draws from so many cells that can occur.

    Agrawal, Finite-sample concentration of the multinomial in relative entropy (2020), theorem 1.2, of G / 2.
    """
    free = cells - 1
    return 1.0 if g / 2 <= free else math.exp(-g / 2 + free * (1 + math.log(g / 2 / free)))


def critical(cells: int, false_alarms: float) -> float:
    """Return the G from which on an alarm is false at most so often, by bisection."""
    low, high = 2.0 * (cells - 1), 2.0 * (cells - 1) + 1e6
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, cells) > false_alarms else (low, middle)
    return high


def missed(draws: int, true: np.ndarray, law: np.ndarray, limit: float) -> float:
    """Return a bound of how probable a G below the limit is if the probabilities are the true ones [J].

    G / 2 is at least the log of the likelihood ratio, a sum over independent draws: Chernoff's bound of that.
    """
    both = (true > 0) & (law > 0)
    log_true, log_law = np.log(true[both]), np.log(law[both])
    tilts = np.linspace(0, 1, 101)
    moments = (np.exp((1 - tilts[:, None]) * log_true + tilts[:, None] * log_law)).sum(1)
    with np.errstate(divide="ignore"):
        return float(np.exp(min(0.0, (tilts * limit / 2 + draws * np.log(moments)).min())))


def draws_needed(true: np.ndarray, law: np.ndarray, limit: float, misses: float) -> int:
    """Return how many draws pass the limit in all but a share `misses` of cases."""
    draws = 1
    while missed(draws, true, law, limit) > misses:
        draws *= 2
    low, high = draws // 2, draws
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if missed(middle, true, law, limit) > misses else (low, middle)
    return high
