"""The bounds of the G-test, against every outcome of small numbers of draws, and against what is drawn."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chi2

from tests.distribution import critical, draws_needed, missed, statistic, tail

LAWS = [np.array(law) for law in ([0.5, 0.5], [0.9, 0.1], [0.2, 0.3, 0.5], [0.01, 0.04, 0.95], [0.25] * 4)]


def outcomes(draws: int, law: np.ndarray) -> list[tuple[float, float]]:
    """Return (G, probability) of every outcome."""
    found = []
    for counts in itertools.product(range(draws + 1), repeat=len(law)):
        if sum(counts) == draws:
            ways = math.factorial(draws) / math.prod(map(math.factorial, counts))
            found.append((statistic(np.array(counts), law), ways * math.prod(law**counts)))
    return found


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("draws", [1, 3, 9, 14])
def test_no_tail_is_above_its_bound(draws: int, law: np.ndarray):
    every = outcomes(draws, law)
    assert sum(share for _, share in every) == pytest.approx(1)
    for g, _ in every:
        assert sum(share for other, share in every if other >= g) <= tail(g, len(law)) * (1 + 1e-9)


@pytest.mark.parametrize("cells", [2, 8, 64, 512])
def test_the_limit_is_that_of_the_bound_and_beyond_the_one_of_large_counts(cells: int):
    limit = critical(cells, 1e-9)
    assert tail(limit, cells) == pytest.approx(1e-9)
    assert chi2.isf(1e-9, cells - 1) < limit < 2 * chi2.isf(1e-9, cells - 1)


def test_the_statistic_is_twice_the_divergence_and_infinite_outside():
    law = np.array([0.5, 0.25, 0.25, 0.0])
    assert statistic(np.array([8, 4, 4, 0]), law) == 0
    assert statistic(np.array([4, 0, 0, 0]), law) == pytest.approx(8 * math.log(2))
    assert statistic(np.array([8, 4, 4, 1]), law) == math.inf


@pytest.mark.parametrize("true", [[0.6, 0.2, 0.2], [0.5, 0.5, 0.0], [0.34, 0.33, 0.33]], ids=str)
def test_alarms_are_missed_no_more_often_than_their_bound(true: list[float]):
    law, limit = np.array([0.45, 0.3, 0.25]), critical(3, 1e-3)
    needed = draws_needed(np.array(true), law, limit, 0.05)
    assert missed(needed, np.array(true), law, limit) <= 0.05 < missed(needed - 1, np.array(true), law, limit)
    drawn = np.random.default_rng(4).multinomial(needed, true, 2000)
    below = np.mean([statistic(counts, law) < limit for counts in drawn])
    assert below <= 0.05
    fewer = np.random.default_rng(4).multinomial(needed // 4, true, 2000)
    assert np.mean([statistic(counts, law) < limit for counts in fewer]) > 0.2


def test_a_token_that_cannot_occur_is_missed_only_while_it_does_not():
    true, law = np.array([0.9, 0.1]), np.array([1.0, 0.0])
    assert missed(10, true, law, 1e9) == pytest.approx(0.9**10)
