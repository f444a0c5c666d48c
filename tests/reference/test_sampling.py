"""The choice of a sampled request: random numbers against published ones, its law from every value of every coin."""

import itertools
import random
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from draftproof.properties.kernels.cases import sampling as cases
from draftproof.properties.values.sampling import Sampling
from draftproof.reference import chooser, decode
from draftproof.reference import sampling as reference
from draftproof.reference.sampling import ACCEPT, DRAW, Coin, coins, philox, sample
from tests.distribution import critical, statistic
from tests.reference.enumerated import Coins, law_of

WORD = (1 << 32) - 1
MOST = (1 << 30) + (1 << 17)

Weights = Callable[[tuple[int, ...]], list[int]]
Drafter = Callable[[tuple[int, ...], int], int]


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((WORD,) * 4, (WORD,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
    ids=("zeros", "ones", "pi"),
)
def test_philox_gives_the_known_answers_of_random123(counter, key, words):
    """`philox4x32 10` in tests/kat_vectors of DEShawResearch/random123."""
    assert philox(counter, key) == words


def test_a_coin_is_the_first_two_words_of_its_position_draw_and_seed(monkeypatch: pytest.MonkeyPatch):
    for most in (1, 2, 3, 1000, 1 << 20, MOST):
        assert coins(0, 0)(ACCEPT, most) == Fraction(0x6627E8D5E169C58D * most, 1 << 64) // 1
    asked = []
    monkeypatch.setattr(reference, "philox", lambda *of: asked.append(of) or (1, 2, 3, 4))
    assert [coins(0x123456789ABCDEF0, 77)(draw, 1 << 64) for draw in (ACCEPT, DRAW)] == [(1 << 32) + 2] * 2
    assert asked == [((77, draw, 0, 0), (0x9ABCDEF0, 0x12345678)) for draw in (0, 1)]


@pytest.mark.parametrize("most", [1, 2, 3, 7, 4096, (1 << 18) + 1, 1 << 30, MOST - 1, MOST])
def test_every_value_of_a_coin_has_as_many_random_numbers_give_or_take_one(most: int, monkeypatch: pytest.MonkeyPatch):
    """So a probability is off by less than 2^-64, of at least 1 / (2^30 + 2^17)."""

    def coin_of(x: int) -> int:
        monkeypatch.setattr(reference, "philox", lambda *_: (x >> 32, x & WORD, 0, 0))
        return coins(1, 1)(ACCEPT, most)

    for value in {0, min(1, most - 1), most // 3, most // 2, max(0, most - 2), most - 1}:
        first, end = -(-(value << 64) // most), -((-(value + 1) << 64) // most)
        assert abs((end - first) - Fraction(1 << 64, most)) < 1
        assert coin_of(first) == coin_of(end - 1) == value
        assert first == 0 or coin_of(first - 1) == value - 1
        assert end == 1 << 64 or coin_of(end) == value + 1


@pytest.mark.parametrize(
    "other",
    [
        lambda seed, position: coins(seed, position)(DRAW, 8),
        lambda seed, position: coins(seed, position + 1)(ACCEPT, 8),
        lambda seed, position: coins(seed + 1, position)(ACCEPT, 8),
        lambda seed, position: coins(seed ^ (1 << 32), position)(ACCEPT, 8),
        lambda seed, position: coins(seed ^ (1 << 62), position)(DRAW, 8),
    ],
    ids=("draw", "position", "seed", "high word", "highest bit"),
)
def test_coins_are_even_and_independent_of_their_neighbours(other: Callable[[int, int], int]):
    pairs = [
        coins(seed, position)(ACCEPT, 8) * 8 + other(seed, position) for seed in range(64) for position in range(64)
    ]
    assert statistic(np.bincount(pairs, minlength=64), np.full(64, 1 / 64)) < critical(64, 1e-9)
    same = [coins(seed, 3)(ACCEPT, 8) * 9 for seed in range(4096)]
    assert statistic(np.bincount(same, minlength=64), np.full(64, 1 / 64)) > critical(64, 1e-9)


def test_the_coins_that_calls_are_aimed_with_are_those_of_the_definition():
    """Written twice, since what generates calls knows no reference."""
    rng = random.Random(1)
    for _ in range(200):
        at = rng.getrandbits(63), rng.randrange(1 << 20), rng.randrange(2), rng.randrange(1, MOST + 1)
        assert cases._coin(*at) == coins(*at[:2])(*at[2:])


def row_law(weights: list[int], draft: int | None) -> list[Fraction]:
    """Return the probability of each token from all values of both coins."""
    law = law_of(lambda coins: sample(weights, () if draft is None else (draft,), coins(0, 0)))
    return [law.get(token, Fraction(0)) for token in range(len(weights))]


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 4])
def test_a_row_has_the_targets_law_whatever_its_draft_is(vocabulary: int):
    """Every weight from 0 to 2, and every draft, of no weight too; that it is rejected and the token is not."""
    for weights in itertools.product(range(3), repeat=vocabulary):
        if any(weights):
            expected = [Fraction(weight, sum(weights)) for weight in weights]
            assert all(row_law(list(weights), draft) == expected for draft in (None, *range(vocabulary)))


@pytest.mark.parametrize("vocabulary", [5, 6, 7, 8])
def test_larger_rows_have_it_too(vocabulary: int):
    rng = random.Random(vocabulary)
    for _ in range(6):
        weights = [rng.choice((0, 1, 1, 2, 3)) for _ in range(vocabulary - 1)] + [1]
        expected = [Fraction(weight, sum(weights)) for weight in weights]
        assert all(row_law(weights, draft) == expected for draft in (None, *range(vocabulary)))


def weights_after(vocabulary: int, seed: int, most: int) -> Weights:
    """Return weights that depend on the whole text, of at least two tokens."""

    def weights(text: tuple[int, ...]) -> list[int]:
        rng = random.Random(f"{seed} {text}")
        found = [rng.randint(0, most) for _ in range(vocabulary)]
        for token in rng.sample(range(vocabulary), 2):
            found[token] = max(1, found[token])
        return found

    return weights


def emitted_law(
    weights: Weights, drafter: Callable[[Coins], Drafter], length: int, drafts: int, patch: pytest.MonkeyPatch
) -> dict[tuple[int, ...], Fraction]:
    """Return the law of the first tokens that rounds of `verify` emit, each of so many drafts, from every coin.

    A drafter is made with the coins, which it may look at or not. Rows behind a rejected draft choose too.
    """

    def forward(tokens: tuple[int, ...], first: int = 0) -> SimpleNamespace:
        return SimpleNamespace(logits=np.array([weights(tokens[: end + 1]) for end in range(len(tokens))], float))

    def emitted(coins: Coins) -> tuple[int, ...]:
        patch.setattr(chooser, "coins", coins)
        text: tuple[int, ...] = (0,)
        while len(text) <= length:
            proposed: tuple[int, ...] = ()
            for _ in range(min(drafts, length + 1 - len(text))):
                proposed += (drafter(coins)(text + proposed, len(text) + len(proposed)),)
            text += decode.verify(
                SimpleNamespace(forward=forward, widened=0.0), text, proposed, sampling=Sampling()
            ).emitted
        return text[1 : length + 1]

    patch.setattr(chooser, "probe_weights", lambda logits, _: logits.astype(int).tolist())
    return law_of(emitted)


def text_law(weights: Weights, length: int) -> dict[tuple[int, ...], Fraction]:
    """Return the target's own law of texts: a product of one share for each token."""
    law = {(0,): Fraction(1)}
    for _ in range(length):
        law = {
            (*text, token): share * Fraction(weight, sum(weights(text)))
            for text, share in law.items()
            for token, weight in enumerate(weights(text))
            if weight
        }
    return {text[1:]: share for text, share in law.items()}


def blind(seed: int, vocabulary: int) -> Callable[[Coins], Drafter]:
    """Return drafts that depend on the text before them, in any way."""
    return lambda _coins: lambda text, _position: random.Random(f"{seed} {text}").randrange(vocabulary)


LAWS = pytest.mark.parametrize(
    ("vocabulary", "most", "length", "drafts"),
    [(2, 2, 3, 1), (2, 2, 3, 2), (3, 1, 3, 2), (3, 2, 2, 2), (4, 2, 2, 1), (2, 1, 4, 3)],
)


@pytest.mark.parametrize("seed", range(2))
@LAWS
def test_rounds_one_after_another_emit_the_targets_texts(
    vocabulary: int, most: int, length: int, drafts: int, seed: int, monkeypatch: pytest.MonkeyPatch
):
    weights = weights_after(vocabulary, seed, most)
    assert emitted_law(weights, blind(seed, vocabulary), length, drafts, monkeypatch) == text_law(weights, length)


@pytest.mark.parametrize("seed", range(2, 4))
@LAWS
def test_so_they_do_with_other_weights(
    vocabulary: int, most: int, length: int, drafts: int, seed: int, monkeypatch: pytest.MonkeyPatch
):
    weights = weights_after(vocabulary, seed, most)
    assert emitted_law(weights, blind(seed, vocabulary), length, drafts, monkeypatch) == text_law(weights, length)


@pytest.mark.parametrize("drafts", [1, 2, 3])
@pytest.mark.parametrize("vocabulary", [5, 8])
def test_so_do_chains_of_larger_vocabularies(vocabulary: int, drafts: int):
    """From the law of each row: of two positions no coin is the same."""
    weights, drafter, length = weights_after(vocabulary, drafts, 2), blind(drafts, vocabulary)(coins), 3

    def after(text: tuple[int, ...], left: int) -> dict[tuple[int, ...], Fraction]:
        if len(text) > length:
            return {text[1:]: Fraction(1)}
        draft = drafter(text, len(text)) if left else None
        return {
            whole: share * rest
            for token, share in enumerate(row_law(weights(text), draft))
            if share
            for whole, rest in after((*text, token), left - 1 if token == draft else drafts).items()
        }

    assert after((0,), drafts) == text_law(weights, length)


def test_drafts_that_know_their_coins_change_the_law(monkeypatch: pytest.MonkeyPatch):
    """As those that a plan forces do (S-SAMPLE-7): what is shown of blind ones is no property of anything."""

    weights = weights_after(3, 1, 2)

    def seeing(coins: Coins) -> Drafter:
        def draft(text: tuple[int, ...], position: int) -> int:
            of = weights(text)
            return int(coins(0, position)(ACCEPT, sum(of)) >= of[0])

        return draft

    assert emitted_law(weights, seeing, 2, 1, monkeypatch) != text_law(weights, 2)


@pytest.mark.parametrize("wrong", ["one coin", "draft not taken out", "accepted too often"])
def test_a_wrong_choice_changes_the_law(wrong: str, monkeypatch: pytest.MonkeyPatch):
    def choose(weights: list[int], drafts: tuple[int, ...], coin: Coin) -> int:
        if wrong == "one coin":
            return sample(weights, drafts, lambda _draw, most: coin(ACCEPT, most))
        if wrong == "accepted too often":
            return sample(weights, drafts, lambda draw, most: max(0, coin(draw, most) - (draw == ACCEPT)))
        taken = [draft for draft in drafts if coin(ACCEPT, sum(weights)) < weights[draft]]
        return sample(weights, taken, coin)

    monkeypatch.setattr(chooser, "sample", choose)

    def weights(text: tuple[int, ...]) -> list[int]:
        return [2, 1, 1] if len(text) % 2 else [1, 1, 2]

    def likeliest(_coins: Coins) -> Drafter:
        return lambda text, _position: weights(text).index(2)

    assert emitted_law(weights, likeliest, 2, 1, monkeypatch) != text_law(weights, 2)
