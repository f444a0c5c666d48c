"""Drafts that are drawn: the law of what their verification emits, from every value of every coin."""

import itertools
import random
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from draftproof import kernels
from draftproof.properties.values.sampling import Sampling
from draftproof.reference import chooser, decode
from draftproof.reference.sampling import ACCEPT, DRAW, Coin, coins, draft_coins, rejected_or_not, sample
from tests.distribution import critical, statistic
from tests.reference.enumerated import Coins, law_of
from tests.reference.test_sampling import text_law, weights_after

HIGHEST = 1 << 63
Row = list[int]
Verify = Callable[[Row, Row, int, Coin], int]


def round_law(p: Row, q: Row, verify: Verify = rejected_or_not) -> list[Fraction]:
    """Return the probability of each token of one place: its draft is drawn by q and verified by p."""

    def choice(of: Coins) -> int:
        # Seed 1 stands for the key with its highest bit set.
        return verify(p, q, sample(q, (), lambda draw, most: of(1, 1)(draw, most)), of(0, 0))

    law = law_of(choice)
    return [law.get(token, Fraction(0)) for token in range(len(p))]


@pytest.mark.parametrize("vocabulary", [2, 3])
def test_a_row_has_the_targets_law_whatever_draws_its_draft(vocabulary: int):
    """Every weight from 0 to 2, of both."""
    rows = [row for row in itertools.product(range(3), repeat=vocabulary) if any(row)]
    for p, q in itertools.product(rows, rows):
        assert round_law(list(p), list(q)) == [Fraction(weight, sum(p)) for weight in p]


@pytest.mark.parametrize("vocabulary", [4, 5, 6, 7, 8])
def test_larger_rows_have_it_too(vocabulary: int):
    rng = random.Random(vocabulary)
    for _ in range(5):
        p, q = ([*(rng.choice((0, 1, 1, 2)) for _ in range(vocabulary - 1)), 1] for _ in range(2))
        rng.shuffle(q)
        assert round_law(p, q) == [Fraction(weight, sum(p)) for weight in p]


@pytest.mark.parametrize(("vocabulary", "drafts", "length"), [(2, 1, 2), (2, 2, 1), (3, 1, 1)])
def test_rounds_one_after_another_emit_the_targets_texts(
    vocabulary: int, drafts: int, length: int, monkeypatch: pytest.MonkeyPatch
):
    """Chains by `verify` itself, with coins that a discarded draft meets again."""
    weights, own = weights_after(vocabulary, drafts, 2), weights_after(vocabulary, drafts + 100, 2)

    def forward(tokens: tuple[int, ...], first: int = 0) -> SimpleNamespace:
        return SimpleNamespace(logits=np.array([weights(tokens[: end + 1]) for end in range(len(tokens))], float))

    def emitted(of: Coins) -> tuple[int, ...]:
        for module in (decode, chooser):
            monkeypatch.setattr(module, "coins", lambda seed, position: of(seed, (0, position)))
        text: tuple[int, ...] = (0,)
        while len(text) <= length:
            proposed, by = (), tuple[tuple[int, ...], ...]()
            for place in range(drafts):
                by += (tuple(own(text + proposed)),)
                proposed += (sample(list(by[-1]), (), of(0, (1, len(text) + place))),)
            text += decode.verify(
                SimpleNamespace(forward=forward, widened=0.0), text, proposed, (), Sampling(), by
            ).emitted
        return text[1 : length + 1]

    for module in (decode, chooser):
        monkeypatch.setattr(module, "probe_weights", lambda logits, _: logits.astype(int).tolist())
    assert law_of(emitted) == text_law(weights, length)


@pytest.mark.parametrize("drafts", [1, 2, 3])
@pytest.mark.parametrize("vocabulary", [5, 8])
def test_so_do_chains_of_larger_vocabularies(vocabulary: int, drafts: int):
    """From the joint law of draft and choice in each row: of two positions no coin is the same."""
    weights, own, length = weights_after(vocabulary, drafts, 2), weights_after(vocabulary, 50 + drafts, 2), 2

    @cache
    def pairs(text: tuple[int, ...], is_drafted: bool) -> dict[tuple[int, int], Fraction]:
        p, q = weights(text), own(text)
        if not is_drafted:
            return {(-1, token): Fraction(weight, sum(p)) for token, weight in enumerate(p) if weight}

        def both(of: Coins) -> tuple[int, int]:
            draft = sample(q, (), of(1, 1))
            return draft, rejected_or_not(p, q, draft, of(0, 0))

        return law_of(both)

    def after(text: tuple[int, ...], left: int) -> dict[tuple[int, ...], Fraction]:
        if len(text) > length:
            return {text[1:]: Fraction(1)}
        found: dict[tuple[int, ...], Fraction] = {}
        for (draft, token), share in pairs(text, left > 0).items():
            for whole, rest in after((*text, token), left - 1 if token == draft else drafts).items():
                found[whole] = found.get(whole, Fraction(0)) + share * rest
        return found

    assert after((0,), drafts) == text_law(weights, length)


def inverted(p: Row, q: Row, draft: int, coin: Coin) -> int:
    """Accept with q / p."""
    if coin(ACCEPT, p[draft] * sum(q)) < q[draft] * sum(p):
        return draft
    return recovered(p, q, coin(DRAW, sum(rest_of(p, q))), draft)


def bonus_from_all(p: Row, q: Row, draft: int, coin: Coin) -> int:
    """Draw from p, and not from what it has more than q."""
    accepts = coin(ACCEPT, q[draft] * sum(p)) < p[draft] * sum(q)
    return draft if accepts else sample(p, (), coin)


def coin_reused(p: Row, q: Row, draft: int, coin: Coin) -> int:
    """Draw with the number that rejected."""
    return rejected_or_not(p, q, draft, lambda _draw, most: coin(ACCEPT, most))


def temperature_twice(p: Row, q: Row, draft: int, coin: Coin) -> int:
    """Divide by a temperature of one half once too often, which squares the weights."""
    return rejected_or_not([weight**2 for weight in p], q, draft, coin)


def unmasked(p: Row, q: Row, draft: int, coin: Coin) -> int:
    """Take q of the logits before its filter, which leaves the three likeliest tokens."""
    return rejected_or_not(p, UNFILTERED, draft, coin)


def rest_of(p: Row, q: Row) -> Row:
    return [max(0, a * sum(q) - b * sum(p)) for a, b in zip(p, q, strict=True)]


def recovered(p: Row, q: Row, number: int, draft: int) -> int:
    sums = itertools.accumulate(rest_of(p, q))
    return next((token for token, below in enumerate(sums) if number < below), draft)


P, UNFILTERED = [6, 5, 4, 1, 3, 2, 2, 1], [1, 4, 2, 4, 1, 4, 1, 2]
Q = [0, 4, 0, 4, 0, 4, 0, 0]
WRONG: dict[str, Verify] = {
    one.__name__: one for one in (inverted, bonus_from_all, coin_reused, temperature_twice, unmasked)
}
LOOKS = (*(100 << n for n in range(10)), 100_000)
FALSE_ALARMS = 1e-9 / (len(LOOKS) * (len(WRONG) + 1))
"""What falls to each G-test: one false alarm in 10^9 of all that are made here together."""
FOUND = {
    "inverted": (1, 100),
    "bonus_from_all": (1, 400),
    "coin_reused": (1, 800),
    "temperature_twice": (2, 800),
    "unmasked": (4, 400),
}
"""The round in which each first emits another token than defined, and after how many the G-test raises an alarm."""
LAW = np.array([float(Fraction(weight, sum(P))) for weight in P])


def drafted(seed: int) -> int:
    return sample(Q, (), draft_coins(seed, 5))


def looked_at(chosen: np.ndarray) -> dict[int, float]:
    looks = (look for look in LOOKS if look <= len(chosen))
    return {look: statistic(np.bincount(chosen[:look], minlength=len(P)), LAW) for look in looks}


def test_the_engines_op_raises_no_alarm_in_100000_rounds():
    seeds = torch.arange(LOOKS[-1]) + (5 << 33)
    places = torch.full_like(seeds, 5)
    p, q = (torch.tensor(weights).expand(len(seeds), -1) for weights in (P, Q))
    drafts, chosen = torch.full_like(seeds, -1), torch.full_like(seeds, -1)
    kernels.sampled_choice(drafts, q, torch.full_like(seeds, -1)[:, None], seeds | -HIGHEST, places)
    assert drafts[:50].tolist() == [drafted(seed) for seed in seeds[:50].tolist()]
    kernels.rejection_choice(chosen, p, q, drafts, seeds, places)
    assert max(looked_at(chosen.numpy()).values()) < critical(len(P), FALSE_ALARMS)


def differing(wrong: Verify, first: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the token of each round, a seed each from `first` on, and whether it is another than defined."""
    seeds = range(first, first + rounds)
    chosen = np.array([wrong(P, Q, drafted(seed), coins(seed, 5)) for seed in seeds])
    return chosen, chosen != [rejected_or_not(P, Q, drafted(seed), coins(seed, 5)) for seed in seeds]


def first_alarm(chosen: np.ndarray) -> int:
    """Return after how many rounds the G-test first raises an alarm."""
    limit = critical(len(P), FALSE_ALARMS)
    return next(look for look, g in looked_at(chosen).items() if g > limit)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_sampler_is_found_by_the_definition_and_by_the_distribution_alone(name: str):
    chosen, differs = differing(WRONG[name], 3 << 33, LOOKS[4])
    assert (int(differs.argmax()) + 1, first_alarm(chosen)) == FOUND[name]


def test_coins_of_drafts_are_of_another_key():
    assert draft_coins(5, 7)(DRAW, HIGHEST) == coins(5 | HIGHEST, 7)(DRAW, HIGHEST) != coins(5, 7)(DRAW, HIGHEST)
