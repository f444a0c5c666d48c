"""The tests of an audit: how often a right engine fails, that a wrong one does, and that the prompt is the unit."""

import numpy as np
import pytest

from draftproof.harness.audit.says import Uncounted
from draftproof.harness.audit.statistics import (
    _quantile,
    _tail,
    by_chance,
    noticeable,
    of_counts,
    of_rounds,
    sides,
    spread,
)
from draftproof.harness.audit.tally import OneRound, Tally, tally

PROMPTS, ROUNDS, STEPS = 20, 15, 4


def drawn(source: np.random.Generator, shift: float = 0.0, prompts: int = PROMPTS) -> Tally:
    """Return a tally of texts that differ in how well drafts do on them."""
    texts = []
    for chance in source.beta(6 - shift, 3 + shift, prompts):
        lengths = np.minimum(source.geometric(1 - chance, ROUNDS) - 1, STEPS)
        texts.append([OneRound(STEPS, int(length)) for length in lengths])
    return tally(texts, STEPS, idle_count=False)


def test_rates_are_shares_of_rounds():
    one = tally([[OneRound(2, 2), OneRound(2, 0)], [OneRound(2, 1), OneRound(0, 0)]], 2, idle_count=False)
    assert one.rates.tolist() == [2 / 3, 1 / 3]
    assert one.mean == 1.0
    assert tally([[OneRound(2, 2), OneRound(0, 0)]], 2, idle_count=True).mean == 1.0


def test_other_prompts_of_the_same_kind_hardly_ever_alarm():
    """Worse than an audit's case, in which the prompts are the same; 400 audits have 0.4 alarms at most by design."""
    source = np.random.default_rng(5)
    alarms = 0
    for seed in range(400):
        seen = drawn(source)
        alarms += of_counts(drawn(source), seen.rates, int(seen.rounds.sum()), seed).alarms()
    assert alarms <= 6


def test_a_shortfall_that_is_called_noticeable_is_noticed():
    expected = drawn(np.random.default_rng(6), prompts=60)
    rounds = int(expected.rounds.sum())
    less = noticeable(expected, rounds, 0)
    assert 0.1 < less < 1.5
    short = expected.rates * (1 - less / expected.mean)
    assert of_counts(expected, short, rounds, 0).alarms()
    assert not of_counts(expected, expected.rates, rounds, 0).alarms()
    assert noticeable(expected, 20 * rounds, 0) < less


def test_copies_of_a_text_say_no_more_than_it():
    """Rounds within a prompt are not independent: forty equal rounds of a prompt are one thing that is known."""
    source = np.random.default_rng(7)
    one = drawn(source)
    longer = Tally(one.rounds * 40, one.accepted * 40)
    assert np.allclose(spread(one, 0).covariance, spread(longer, 0).covariance)


def test_the_same_rounds_pass_and_fewer_accepted_alarm():
    expected = drawn(np.random.default_rng(8))
    assert of_rounds(expected, expected).mean == 1.0
    less = expected._replace(accepted=np.maximum(expected.accepted - 2, 0))
    assert of_rounds(expected, less).alarms()
    mixed = expected.accepted + np.where(np.arange(PROMPTS) % 2, 1, -1)[:, None]
    assert not of_rounds(expected, expected._replace(accepted=mixed)).alarms()


def test_prompts_that_side_with_a_mistake_are_no_chance():
    """Exact: of n prompts that all side with it, one sign in 2^n does; as many on the other side are no evidence."""
    assert sides(np.array([3, 1, 2, 5])) == 2**-4
    assert sides(np.array([1] * 20)) == 2**-20
    assert sides(np.array([1, 0, 0])) == 1 / 2
    assert sides(np.array([2, -2])) == sides(np.zeros(3, int)) == sides(np.array([-4, 1])) == 1.0
    assert sides(np.array([1, 1, -1])) == 1 / 2


def test_flips_that_go_either_way_hardly_ever_side_with_a_mistake():
    source, least = np.random.default_rng(9), 1.0
    for _ in range(300):
        by_round = source.choice([-1, 0, 1], (PROMPTS, ROUNDS), p=[0.1, 0.8, 0.1])
        least = min(least, sides(by_round.sum(axis=1)))
    assert least > 1e-4


def test_the_tail_is_that_of_students_t():
    from scipy.stats import t as student

    for prompts in (10, 20, 100):
        for deviate in (0.5, 2.0, 4.0, 6.0):
            assert _tail(deviate, prompts) == pytest.approx(2 * student.sf(deviate, prompts - 1), rel=0.1)
        assert _tail(_quantile(0.0002, prompts), prompts) == pytest.approx(0.0002, rel=1e-3)


def test_sums_of_other_prompts_are_within_chance():
    source, far = np.random.default_rng(7), 0
    for _ in range(2000):
        ours, others = source.normal(50, 8, (2, 20))
        far += abs(ours.sum() - others.sum()) > by_chance(ours)
    assert far <= 8
    assert by_chance(np.full(12, 24)) == 0


def test_counts_of_all_rounds_are_not_asked_for_again():
    drafts, all_rounds = (str(Uncounted(20, 50, 40, 99, with_idle=idle)) for idle in (False, True))
    assert drafts.startswith(
        "the engine counted 20 rounds with drafts that emit 50 tokens, and a right one has 40 of 99"
    )
    assert 'give all rounds as "rounds" of --observed' in drafts
    assert all_rounds.endswith("after these prompts: other prompts or other --tokens")
