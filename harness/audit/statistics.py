"""How far counts may be off if nothing is wrong (S-AUDIT-4): prompts are drawn, never rounds.

Rounds within a text depend on each other: texts repeat themselves, and what a mistake leaves behind stays. So the
unit is the prompt. Shapes: `K` drafts of a round.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from draftproof.harness.audit.tally import Tally

AUDIT_FALSE_ALARMS = 0.001
"""How often an audit of a right engine fails, at most; shared out among all tests of an audit."""
LEAST_PROMPTS = 10
_MOST_PROMPTS = 100_000
_DRAWS = 4000
_FLOOR = 0.004
"""Rates are never known better than this: an engine cuts its last round otherwise, or rounds."""
_NOTICED = 1.2816


class RateSpread(NamedTuple):
    """What is known of rates that a tally came to: 95 % intervals `low`, `high` [K], their covariance [K, K]."""

    low: np.ndarray
    high: np.ndarray
    covariance: np.ndarray


class Tested(NamedTuple):
    """Probabilities of a difference as large, of the mean and of each position [K]; `log_likelihood` of all rates."""

    mean: float
    positions: np.ndarray
    log_likelihood: float

    def alarms(self, share: float = 1.0) -> bool:
        """Return whether any of them is below what falls to it of this share of the false alarms."""
        return bool(min(self.mean, *self.positions) < share * AUDIT_FALSE_ALARMS / (1 + len(self.positions)))


def spread(tallied: Tally, seed: int) -> RateSpread:
    """Return the spread of a tally over samples of its prompts (cluster bootstrap)."""
    count = len(tallied.rounds)
    rates = tallied.drawn(np.random.default_rng(seed).integers(0, count, (_DRAWS, count)))
    low, high = np.quantile(rates, (0.025, 0.975), axis=0)
    # A sample of this many prompts varies by (count - 1) / count of what prompts do.
    return RateSpread(low, high, np.atleast_2d(np.cov(rates.T)) * count / max(1, count - 1))


def of_counts(expected: Tally, observed: np.ndarray, rounds: int, seed: int) -> Tested:
    """Test observed rates [K] of `rounds` rounds, as if they came from other prompts of the same kind.

    They came from the same prompts, so this is on the safe side: rounding may send every text elsewhere.
    """
    share = 1 + expected.rounds.sum() / max(1, rounds)
    return _test(expected.rates - observed, spread(expected, seed).covariance * share, len(expected.rounds))


def of_rounds(expected: Tally, observed: Tally) -> Tested:
    """Test the same rounds of the same texts: how much the difference varies from prompt to prompt is what is known."""
    total, count = max(1, int(observed.rounds.sum())), len(observed.rounds)
    by_prompt = (observed.accepted - expected.accepted) / total
    around = by_prompt - by_prompt.mean(axis=0)
    return _test(-by_prompt.sum(axis=0), around.T @ around * count / max(1, count - 1), count)


def of_two(one: Tally, other: Tally) -> Tested:
    """Test the rates of two engines on the same prompts, which are rows of both: their difference, prompt by prompt.

    A rate is accepted drafts over rounds, and engines differ in their rounds, too: what a prompt adds to the difference
    is its part of either ratio, linearised (the delta method).
    """
    count = len(one.rounds)
    by_prompt = _parts(other) - _parts(one)
    return _test(one.rates - other.rates, by_prompt.T @ by_prompt * count / max(1, count - 1), count)


def _parts(tallied: Tally) -> np.ndarray:
    """Return [R, K]: how much each prompt lifts the rates; the sum over all prompts is zero."""
    return np.asarray((tallied.accepted - tallied.rounds[:, None] * tallied.rates) / max(1, tallied.rounds.sum()))


def sides(gains: np.ndarray) -> float:
    """Return how probable it is that prompts agree this much with a mistake by chance, if each is as likely not to.

    `gains` [R]: rounds that went as the mistake says and not as defined, minus rounds the other way round. Exact, over
    all signs that they could have (S-AUDIT-12).
    """
    sizes, reached = np.abs(gains).astype(int), int(gains.sum())
    most = int(sizes.sum())
    if reached <= 0:
        return 1.0
    chances = np.zeros(2 * most + 1)
    chances[most] = 1.0
    for size in sizes[sizes > 0]:
        chances = (np.roll(chances, size) + np.roll(chances, -size)) / 2
    return float(min(1.0, chances[most + reached :].sum()))


def by_chance(numbers: np.ndarray) -> float:
    """Return how far the sum of one number a prompt [R] may differ by chance from that of as many other prompts."""
    deviation = math.sqrt(2 * len(numbers)) * float(numbers.std(ddof=1)) if len(numbers) > 1 else 0.0
    return _quantile(AUDIT_FALSE_ALARMS, len(numbers)) * deviation


def noticeable(expected: Tally, rounds: int, seed: int) -> float:
    """Return the least shortfall of the mean that counts of `rounds` rounds show in nine of ten cases."""
    share = 1 + expected.rounds.sum() / max(1, rounds)
    deviation = math.sqrt(max(0.0, float(spread(expected, seed).covariance.sum())) * share)
    needed = _quantile(AUDIT_FALSE_ALARMS / (1 + expected.accepted.shape[1]), len(expected.rounds))
    return (needed + _NOTICED) * math.hypot(deviation, _FLOOR)


def enough_prompts(expected: Tally, rounds: int, seed: int, shortfall: float) -> int | None:
    """Return how many such prompts it takes until counts show a shortfall; None if no number does."""
    share = 1 + expected.rounds.sum() / max(1, rounds)
    of_one = float(spread(expected, seed).covariance.sum()) * share * len(expected.rounds)
    tail, count = AUDIT_FALSE_ALARMS / (1 + expected.accepted.shape[1]), LEAST_PROMPTS
    while count <= _MOST_PROMPTS:
        if (_quantile(tail, count) + _NOTICED) * math.hypot(math.sqrt(of_one / count), _FLOOR) < shortfall:
            return count
        count += max(1, count // 10)
    return None


def _test(difference: np.ndarray, covariance: np.ndarray, prompts: int) -> Tested:
    floor = np.eye(len(difference)) * _FLOOR**2
    whole = covariance + floor
    positions = np.array([_tail(d / math.sqrt(v), prompts) for d, v in zip(difference, np.diag(whole), strict=True)])
    mean = _tail(float(difference.sum()) / math.sqrt(float(covariance.sum()) + _FLOOR**2 * len(difference)), prompts)
    _, size = np.linalg.slogdet(whole)
    return Tested(mean, positions, float(-0.5 * (difference @ np.linalg.solve(whole, difference) + size)))


def _tail(t: float, prompts: int) -> float:
    """Return the two-sided probability of Student's t at `t`, with variances over `prompts` prompts.

    By Wallace's approximation (1959), which is good to a few percent of the probability from 9 degrees of freedom on.
    """
    df = max(1, prompts - 1)
    z = math.sqrt(df * math.log1p(t * t / df)) * (8 * df + 1) / (8 * df + 3)
    return math.erfc(z / math.sqrt(2))


def _quantile(tail: float, prompts: int) -> float:
    """Return the deviate as far as which, either way, lies all but `tail`, by bisection."""
    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _tail(middle, prompts) > tail else (low, middle)
    return low
