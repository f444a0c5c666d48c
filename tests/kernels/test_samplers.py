"""What sampled verification emits has the target's distribution, and wrong samplers are told from it, of trees too.

Each is found in two ways: exactly, by the first round that emits other tokens than the definition's, and by a G-test of
emitted texts, which knows no random numbers. `python -m tests.kernels.sampler_table` prints both for a seed.
"""

import itertools
from typing import NamedTuple

import numpy as np
import pytest

from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.tree import chain, depths
from tests.distribution import critical, draws_needed, statistic
from tests.kernels import samplers
from tests.kernels.samplers import WRONG, WRONG_OF_TREES, Coins, Law, Sampler, round_of, text_law, texts

VOCABULARY, LENGTH, START = 8, 3, 0
CHAIN = chain(3)
TREE = (0, 0, 0, 1, 1, 2, 4)
MOST = 100_000
LOOKS = (*(100 << n for n in range(10)), MOST)
"""Rounds after which the G-test is made."""
_STEPS = np.random.default_rng(1).permuted(np.tile([0, 0, 2, 2, 4, 4, 6, 6], (VOCABULARY, 1)), axis=1)
FILTERED = Law((6.0 - _STEPS) * (1 << 18), Sampling(temperature=2.0, top_k=3))
"""Weights of 8, 8, 4, 4, 2, 2, 1, 1 in another order behind each token, of which the first four are kept."""
HEALTHY = (
    FILTERED,
    FILTERED._replace(sampling=Sampling(temperature=2.0)),
    FILTERED._replace(sampling=Sampling(temperature=1.0, top_k=7, top_p=0.875, min_p=1 / 16)),
)
DRAFTERS = {
    "likeliest": (-FILTERED.weights()).argsort(1, kind="stable")[:, :3],
    "least likely": FILTERED.weights(filters=False).argsort(1, kind="stable")[:, :3],
    "always the same": np.tile(np.arange(3), (VOCABULARY, 1)),
}
TESTS = len(LOOKS) * (len(WRONG) + len(WRONG_OF_TREES) + 2 * len(HEALTHY) * len(DRAFTERS))
FALSE_ALARMS = 1e-9 / TESTS
"""What falls to each G-test: one false alarm in 10^9 of all that are made here together."""

Parents = tuple[int, ...]


class Found(NamedTuple):
    """In which round a wrong sampler first emits other tokens than defined, the median of 200 requests and the last;
    after how many rounds the G-test first raises an alarm, and how many it takes to miss it in one of a thousand cases
    at most, its power."""

    exact: tuple[int, int]
    by_distribution: int
    missed_once_in_1000: int


class OfShape(NamedTuple):
    """The wrong samplers of drafts along a chain or a tree, and how each is found."""

    wrong: dict[str, Sampler]
    found: dict[str, Found]


OF = {
    CHAIN: OfShape(
        WRONG,
        {
            "ratio_inverted": Found((1, 2), 100, 50),
            "bonus_from_all": Found((1, 10), 800, 1400),
            "coin_reused": Found((1, 5), 800, 1000),
            "accepted_before_filters": Found((9, 44), 12800, 17_100),
            "temperature_twice": Found((2, 13), 3200, 3100),
        },
    ),
    TREE: OfShape(
        WRONG_OF_TREES,
        {
            "ratio_inverted": Found((1, 2), 100, 50),
            "bonus_from_all": Found((2, 9), 800, 1200),
            "coin_reused": Found((3, 29), 1600, 1700),
            "accepted_before_filters": Found((2, 8), 1600, 2500),
            "temperature_twice": Found((2, 8), 1600, 2400),
            "siblings_alone": Found((1, 6), 200, 200),
            "siblings_of_what_is_left": Found((2, 13), 400, 500),
            "elders_left_in": Found((3, 30), 1600, 1800),
        },
    ),
}
CASES = [(parents, name) for parents, found in OF.items() for name in found.wrong]
SHAPES = pytest.mark.parametrize("parents", OF, ids=("chain", "tree"))
WRONGS = pytest.mark.parametrize(
    ("parents", "name"), CASES, ids=[f"{'chain' if parents == CHAIN else 'tree'}-{name}" for parents, name in CASES]
)


def first_differences(parents: Parents, requests: int, most: int, seed: int = 7 << 40) -> dict[str, np.ndarray]:
    """Return the round [R] in which each sampler first emits other tokens than defined; most + 1: in none.

    All follow what is defined, as a script makes them.
    """
    drafter, seeds = DRAFTERS["likeliest"], np.arange(requests) + seed
    before, at = np.full(requests, START), np.full(requests, samplers.FIRST)
    every = {"engine": samplers.engine, **OF[parents].wrong}
    first = {name: np.full(requests, most + 1) for name in every}
    for number in range(1, most + 1):
        state = (FILTERED, drafter, before, seeds, at, parents)
        expected, count = round_of(samplers.defined, *state)
        for name, sampler in every.items():
            choices, correct = round_of(sampler, *state)
            counts = np.arange(max(depths(parents)) + 1) <= count[:, None]
            differs = (correct != count) | ((choices != expected) & counts).any(1)
            first[name][differs] = np.minimum(first[name][differs], number)
        before = np.take_along_axis(expected, count[:, None], 1)[:, 0]
        at = at + count + 1
    return first


def odds(sampler: Sampler, parents: Parents) -> np.ndarray:
    """Return the exact probabilities [V ** 3] of texts of the sampler, as floats."""
    law = text_law(sampler, FILTERED, DRAFTERS["likeliest"], START, LENGTH, parents)
    assert sum(law.values()) == 1
    return np.array([float(law.get(text, 0)) for text in itertools.product(range(VOCABULARY), repeat=LENGTH)])


def looked_at(sampler: Sampler, law: Law, drafter: np.ndarray, parents: Parents, seed: int) -> dict[int, float]:
    """Return G after each number of rounds, of the texts that were complete by then."""
    emitted, rounds = texts(sampler, law, drafter, START, np.arange(MOST) + seed, LENGTH, parents)
    ends, cells = rounds.cumsum(), emitted @ VOCABULARY ** np.arange(LENGTH)[::-1]
    expected = law.text(START, LENGTH)
    counts = {look: np.bincount(cells[ends <= look], minlength=len(expected)) for look in LOOKS}
    return {look: statistic(count, expected) for look, count in counts.items()}


def limit(law: Law) -> float:
    return critical(int((law.text(START, LENGTH) > 0).sum()), FALSE_ALARMS)


def test_samplers_in_numpy_and_the_engine_choose_what_is_defined():
    generator = np.random.default_rng(2)
    for law in HEALTHY:
        before = generator.integers(0, VOCABULARY, 500)
        drafts = generator.permuted(np.tile(np.arange(-3, VOCABULARY), (500, 1)), axis=1)[:, :3].clip(min=-1)
        coins = Coins(generator.integers(0, 1 << 63, 500), generator.integers(0, 1 << 20, 500))
        expected = samplers.defined(law, before, drafts, coins).tolist()
        assert samplers.right(law, before, drafts, coins).tolist() == expected
        assert samplers.engine(law, before, drafts, coins).tolist() == expected


@SHAPES
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("law", HEALTHY, ids=("top_k", "all", "every filter"))
def test_every_value_of_every_coin_together_gives_the_targets_texts(law: Law, drafter: str, parents: Parents):
    found = text_law(samplers.right, law, DRAFTERS[drafter], START, LENGTH, parents)
    weights = law.weights().tolist()
    for text, share in found.items():
        for before, token in itertools.pairwise((START, *text)):
            share *= sum(weights[before])
            share /= weights[before][token]
        assert share == 1
    assert len(found) == np.count_nonzero(law.text(START, LENGTH))


@WRONGS
def test_no_wrong_sampler_gives_the_targets_texts(parents: Parents, name: str):
    expected = FILTERED.text(START, LENGTH)
    assert np.abs(odds(samplers.right, parents) - expected).max() < 1e-15
    assert np.abs(odds(OF[parents].wrong[name], parents) - expected).max() > 0.004


@SHAPES
def test_wrong_samplers_are_found_by_the_definition_within_a_few_rounds(parents: Parents):
    first = first_differences(parents, requests=200, most=80)
    assert first.pop("engine").min() == 81
    rounds_of = {name: (int(np.median(rounds)), int(rounds.max())) for name, rounds in first.items()}
    assert rounds_of == {name: found.exact for name, found in OF[parents].found.items()}


@WRONGS
def test_wrong_samplers_are_found_by_the_distribution_of_texts_alone(parents: Parents, name: str):
    seen = looked_at(OF[parents].wrong[name], FILTERED, DRAFTERS["likeliest"], parents, seed=3 << 33)
    found = OF[parents].found[name].by_distribution
    assert next(look for look, g in seen.items() if g > limit(FILTERED)) == found
    assert all(g > limit(FILTERED) for look, g in seen.items() if look >= found)


@SHAPES
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("law", HEALTHY, ids=("top_k", "all", "every filter"))
def test_the_engine_raises_no_alarm_in_100000_rounds_whatever_the_drafts(law: Law, drafter: str, parents: Parents):
    seen = looked_at(samplers.engine, law, DRAFTERS[drafter], parents, seed=5 << 33)
    assert max(seen.values()) < limit(law)


@WRONGS
def test_the_power_of_the_test(parents: Parents, name: str):
    wrong = OF[parents].wrong[name]
    _, rounds = texts(wrong, FILTERED, DRAFTERS["likeliest"], START, np.arange(2000), LENGTH, parents)
    needed = draws_needed(odds(wrong, parents), FILTERED.text(START, LENGTH), limit(FILTERED), misses=0.001)
    assert needed * rounds.mean() < OF[parents].found[name].missed_once_in_1000 < MOST
