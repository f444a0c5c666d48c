"""Sampled trees of the reference: the law of what they emit, from every value of every coin; and what plans force."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace

from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Scenario, round_plan
from draftproof.properties.values.tree import chain, children, lineage
from draftproof.reference import chooser
from draftproof.reference.build import build
from draftproof.reference.decode import verify
from draftproof.reference.memo import Memo
from draftproof.reference.request_target import target_of as request_target
from draftproof.reference.sampling import ACCEPT, coins, probe_weights, sample
from draftproof.reference.solve import solve
from draftproof.reference.trees import verify_tree
from tests.named import named
from tests.reference.enumerated import Coins, law_of
from tests.reference.test_sampling import Weights, text_law, weights_after

Parents = tuple[int, ...]


def row_law(weights: list[int], siblings: tuple[int, ...]) -> list[Fraction]:
    """Return the probability of each token from all values of both coins."""
    law = law_of(lambda coins: sample(weights, siblings, coins(0, 0)))
    return [law.get(token, Fraction(0)) for token in range(len(weights))]


@pytest.mark.parametrize("vocabulary", [2, 3, 4])
def test_a_row_has_the_targets_law_whatever_its_children_are(vocabulary: int):
    """Every weight from 0 to 2, and every list of distinct children, up to all tokens."""
    for weights in itertools.product(range(3), repeat=vocabulary):
        if any(weights):
            expected = [Fraction(weight, sum(weights)) for weight in weights]
            for count in range(2, vocabulary + 1):
                for siblings in itertools.permutations(range(vocabulary), count):
                    assert row_law(list(weights), siblings) == expected


def trees(most: int) -> Iterator[Parents]:
    """Yield the parents of every tree of at most so many rows, level after level."""
    found: list[tuple[Parents, tuple[int, ...]]] = [((), (0,))]
    for _ in range(most):
        found = [
            ((*parents, at), (*deep, deep[at] + 1))
            for parents, deep in found
            for at in range(len(parents) + 1)
            if deep[at] + 1 >= deep[-1] and (not parents or at >= parents[-1])
        ]
        yield from (parents for parents, _ in found)


def drafted(text: tuple[int, ...], parents: Parents, vocabulary: int, seed: int) -> tuple[int, ...]:
    """Return tokens for the rows of a tree after a text: any, but distinct below one row."""
    drafts: list[int] = []
    for row, parent in enumerate(parents, start=1):
        known = {drafts[at - 1] for at in children(parents, parent) if at < row}
        free = [token for token in range(vocabulary) if token not in known]
        drafts.append(random.Random(f"{seed} {text} {row}").choice(free))
    return tuple(drafts)


def target_of(weights: Weights) -> SimpleNamespace:
    def forward(tokens: tuple[int, ...], first: int = 0) -> SimpleNamespace:
        return SimpleNamespace(logits=np.array([weights(tokens[: end + 1]) for end in range(len(tokens))], float))

    return SimpleNamespace(forward=forward, widened=0.0)


def test_the_trees_of_at_most_seven_rows_are_many():
    assert [sum(len(parents) == count for parents in trees(7)) for count in range(1, 8)] == [1, 2, 5, 14, 42, 132, 429]


@pytest.mark.parametrize(("vocabulary", "length", "most"), [(2, 2, 3), (2, 3, 2), (3, 1, 3), (3, 2, 2)])
def test_rounds_of_trees_emit_the_targets_texts(
    vocabulary: int, length: int, most: int, monkeypatch: pytest.MonkeyPatch
):
    """All rows of every tree choose, also those that nobody walks, from the coins of their positions."""
    monkeypatch.setattr(chooser, "probe_weights", lambda logits, _: logits.astype(int).tolist())
    for parents in trees(most):
        if max(map(parents.count, parents)) > vocabulary:
            continue
        weights = weights_after(vocabulary, len(parents), 2)
        target = target_of(weights)

        def emitted(coins: Coins, parents: Parents = parents, target: SimpleNamespace = target) -> tuple[int, ...]:
            monkeypatch.setattr(chooser, "coins", coins)
            text: tuple[int, ...] = (0,)
            while len(text) <= length:
                drafts = drafted(text, parents, vocabulary, 5)
                text += verify_tree(target, text, drafts, parents, sampling=Sampling()).emitted
            return text[1 : length + 1]

        assert law_of(emitted) == text_law(weights, length)


@pytest.mark.parametrize("vocabulary", [3, 5, 8])
def test_so_does_every_tree_of_up_to_seven_rows(vocabulary: int):
    """From the exact law of each row that is walked: of two depths no coin is the same."""
    length, laws = 3, dict[tuple[tuple[int, ...], tuple[int, ...]], list[Fraction]]()
    weights = weights_after(vocabulary, 3, 2)

    def after(text: tuple[int, ...], parents: Parents, drafts: tuple[int, ...], at: int) -> dict:
        if len(text) > length:
            return {text[1:]: Fraction(1)}
        below = {drafts[child - 1]: child for child in children(parents, at)}
        key = (tuple(weights(text)), tuple(below))
        if key not in laws:
            laws[key] = row_law(list(key[0]), key[1])
        found: dict[tuple[int, ...], Fraction] = {}
        for token, share in enumerate(laws[key]):
            if share:
                more = (*text, token)
                again = (parents, drafted(more, parents, vocabulary, 7), 0)
                rest = after(more, *((parents, drafts, below[token]) if token in below else again))
                found |= {whole: share * odds for whole, odds in rest.items()}
        return found

    expected = text_law(weights, length)
    every = [parents for parents in trees(7) if max(map(parents.count, parents)) <= vocabulary]
    for parents in every if vocabulary == 3 else random.Random(vocabulary).sample(every, 60):
        assert after((0,), parents, drafted((0,), parents, vocabulary, 7), 0) == expected


def test_a_tree_of_one_branch_is_a_chain():
    weights = weights_after(5, 2, 3)
    target = target_of(lambda text: [weight << 18 for weight in weights(text)])
    for seed in range(200):
        text, sampling = (0, seed % 5), Sampling(temperature=0.5, seed=seed)
        drafts = drafted(text, chain(3), 5, seed)
        tree = verify_tree(target, text, drafts, chain(3), sampling=sampling)
        flat = verify(target, text, drafts, (), sampling)
        assert (tree.tokens, tree.accepted) == (flat.tokens, flat.accepted)


def reseeded(number: int) -> Scenario:
    """Return a scenario of sampled trees with other coins, and another target."""
    scenario = named("tree_sampled")
    requests = tuple(
        replace(one, sampling=one.sampling and replace(one.sampling, seed=97 * number + place))
        for place, one in enumerate(scenario.requests)
    )
    return replace(scenario, requests=requests, model=replace(scenario.model, seed=number))


def test_a_plan_forces_what_the_coins_accept_along_its_path_and_what_they_reject_beside_it():
    """S-TREE-12, from its words: with the text that the rounds emit."""
    seen: Counter[str] = Counter()
    for scenario in map(reseeded, range(45)):
        target, _ = build(scenario, Memo())
        for request, solved in zip(scenario.requests, solve(scenario).requests, strict=True):
            stops = {*solved.stop, *scenario.eos}
            own, text = request_target(target, request, stops), request.prompt + solved.tokens[:1]
            for number, round_ in enumerate(solved.rounds, start=1):
                shape = round_plan(request, number).shape
                if request.sampling and round_.forced and shape:
                    path = shape.path
                    for row, parent in enumerate(round_.parents, start=1):
                        before = text + tuple(round_.forced[at - 1] for at in lineage(round_.parents, parent))
                        elders = [round_.forced[at - 1] for at in children(round_.parents, parent) if at < row]
                        weights = probe_weights(own.forward(before).logits[-1], request.sampling)
                        left = coins(request.sampling.seed, len(before))(ACCEPT, sum(weights))
                        left -= sum(weights[token] for token in elders)
                        token = round_.forced[row - 1]
                        free = [weights[other] for other in range(len(weights)) if other not in elders]
                        assert token not in elders
                        if row in path:
                            assert weights[token] == max(free)
                            seen["right accepted" if 0 <= left < weights[token] else "right rejected"] += 1
                            seen["behind an elder with weight"] += any(weights[elder] for elder in elders)
                        elif parent in path or not parent:
                            weighs = [w for w in sorted(free)[:-1] if 0 < w <= left]
                            seen["wrong accepted" if 0 <= left < weights[token] else "wrong rejected"] += 1
                            assert not weighs or 0 < weights[token] <= left
                text += round_.emitted
            assert text == request.prompt + solved.tokens
    assert seen["wrong rejected"] > 10 * seen["wrong accepted"]
    assert min(seen["right accepted"], seen["right rejected"], seen["behind an elder with weight"]) > 50, seen
