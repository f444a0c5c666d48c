"""Penalised logits against transformers' processors, closed forms and texts that are decoded step by step."""

import random
from collections import Counter
from fractions import Fraction
from math import floor

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from transformers import RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor

from draftproof.properties.validate import validate
from draftproof.properties.values.penalties import Penalties, TokenBias
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import RoundPlan, Scenario
from draftproof.properties.values.tree import Tree, TreeShape
from draftproof.reference.build import build
from draftproof.reference.decode import verify
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.penalties import OfToken, PenalizedTarget, penalized, weakened_targets, with_penalties
from draftproof.reference.run import run
from draftproof.reference.sampling import coins, probe_weights, sample
from draftproof.reference.solve import solve
from draftproof.reference.trees import verify_tree
from tests.reference.scenarios import model, request, scenario

VOCAB = 9


class Fixed:
    """A target of which every row has the same logits."""

    layer_types, widened = ("full_attention",), 0.0

    def __init__(self, logits: list[int]) -> None:
        self._logits = np.array(logits, float)

    def forward(self, tokens: tuple[int, ...], first: int = 0) -> Pass:
        rows = np.tile(self._logits, (len(tokens), 1))
        return Pass(hidden=rows, logits=rows, kv=())


def drawn_penalties(rng: random.Random, vocab: int = VOCAB) -> Penalties:
    amounts = (0, 1, -1, 1 << 22, -(1 << 23), 1 << 24)
    biased = rng.sample(range(vocab), rng.randint(0, 3))
    return Penalties(
        bias=tuple(TokenBias(token=token, amount=rng.choice(amounts)) for token in biased),
        repetition=rng.choice((1 / 16, 0.5, 1.0, 17 / 16, 1.5, 16.0)),
        frequency=rng.choice(amounts),
        presence=rng.choice(amounts),
    )


def by_definition(logits: list[int], prompt: tuple[int, ...], output: tuple[int, ...], own: Penalties) -> list[int]:
    """S-PENALTY-2 in exact fractions, token by token."""
    made = []
    for token, logit in enumerate(logits):
        z = Fraction(logit + sum(one.amount for one in own.bias if one.token == token))
        if token in prompt + output:
            z = Fraction(floor(z / Fraction(own.repetition) if z > 0 else z * Fraction(own.repetition)))
        times = output.count(token)
        made.append(int(z - own.frequency * times - (own.presence if times else 0)))
    return made


@pytest.mark.parametrize("seed", range(40))
def test_every_row_is_penalised_for_the_text_up_to_it(seed: int):
    rng = random.Random(seed)
    logits, own = [rng.choice((0, 1, rng.randrange(1 << 24))) for _ in range(VOCAB)], drawn_penalties(rng)
    tokens, prompt = tuple(rng.choices(range(VOCAB), k=12)), rng.randint(1, 12)
    got = PenalizedTarget(Fixed(logits), prompt, own).forward(tokens).logits
    for row in range(12):
        text = tokens[: row + 1]
        expected = logits if row < prompt - 1 else by_definition(logits, text[:prompt], text[prompt:], own)
        assert got[row].tolist() == expected


@pytest.mark.parametrize("seed", range(40))
def test_bias_and_repetition_are_those_of_transformers_but_for_rounding_down(seed: int):
    rng = random.Random(seed)
    own = replace(drawn_penalties(rng), frequency=0, presence=0)
    logits, text = [rng.randrange(1 << 24) for _ in range(VOCAB)], tuple(rng.choices(range(VOCAB), k=5))
    scores, ids = torch.tensor([logits], dtype=torch.float64), torch.tensor([text])
    if own.bias:
        scores = SequenceBiasLogitsProcessor({(one.token,): float(one.amount) for one in own.bias})(ids, scores)
    expected = RepetitionPenaltyLogitsProcessor(own.repetition)(ids, scores.double()).floor()
    got = PenalizedTarget(Fixed(logits), 3, own).forward(text).logits[-1]
    assert np.abs(got - expected[0].numpy()).max() <= 1


@pytest.mark.parametrize(
    ("logit", "sixteenths", "seen", "expected"),
    [
        (10, 24, True, 6),
        (-10, 24, True, -15),
        (-5, 24, True, -8),
        (0, 24, True, 0),
        (10, 24, False, 10),
        (7, 7, True, 16),
    ],
)
def test_a_repetition_penalty_divides_above_zero_and_multiplies_below(logit, sixteenths, seen, expected):
    assert penalized(logit, 0, sixteenths, 0, 0, OfToken(seen, 0)) == expected


def penalised_scenario(seed: int, kind: str = "chain") -> Scenario:
    """Return a scenario of one request that is penalised: of a chain, of a tree, or without drafts and sampled."""
    rng = random.Random(seed)
    own = replace(drawn_penalties(rng), frequency=rng.choice((1 << 22, -(1 << 23))))
    plans = tuple(
        RoundPlan(num_drafts=drafts, num_correct=rng.randint(-1, drafts)) for drafts in (rng.randint(0, 4), 3)
    )
    sampling = Sampling(temperature=2.0, seed=seed) if kind == "sampled" else None
    if sampling:
        plans = (RoundPlan(num_drafts=0, num_correct=0),)
    one = replace(request(prompt=4, budget=14), rounds=plans, sampling=sampling, penalties=own)
    made = scenario(one, steps=4, of=model(vocab=VOCAB, agreement=rng.choice((0, 256))))
    if kind != "tree":
        return made
    shape = TreeShape(parents=(0, 0, 1, 2), path=(2, 4))
    one = replace(one, rounds=(RoundPlan(num_drafts=2, num_correct=2, shape=shape),))
    return validate(replace(made, tree=Tree(topk=2, nodes=6), requests=(one,)))


@pytest.mark.parametrize("kind", ["chain", "tree", "sampled"])
@pytest.mark.parametrize("seed", range(12))
def test_a_text_is_decoded_by_its_own_penalties_whatever_was_drafted(seed: int, kind: str):
    case = penalised_scenario(seed, kind)
    (one,), (target, _) = case.requests, build(case, Memo())
    (script,) = solve(case).requests
    assert one.penalties
    for number, token in enumerate(script.tokens):
        output, at = script.tokens[:number], len(one.prompt) + number
        raw = target.forward(one.prompt + output).logits[-1].astype(int).tolist()
        logits = by_definition(raw, one.prompt, output, one.penalties)
        if one.sampling:
            weights = probe_weights(np.array(logits), one.sampling)
            assert token == sample(weights, (), coins(one.sampling.seed, at))
        else:
            assert token == logits.index(max(logits))
    right = [round_.correct_len for round_ in script.rounds if round_.forced]
    assert kind != "tree" or set(right[:-1]) == {2}


def test_rows_of_a_tree_are_penalised_for_their_paths():
    own = Penalties(frequency=-(1 << 22))
    target = PenalizedTarget(Fixed([5, 4, 3, 2]), 1, own)
    verified = verify_tree(target, (0, 1), (2, 3, 3, 0), (0, 0, 1, 2))
    assert [choice.token for choice in verified.choices] == [1, 1, 1, 1, 0]
    again = verify_tree(target, (0, 1), (2, 3, 2, 3), (0, 0, 1, 2))
    assert [choice.token for choice in again.choices] == [1, 1, 1, 2, 3]


def test_drafts_of_a_chain_are_in_the_text_of_the_rows_behind_them():
    target = PenalizedTarget(Fixed([5, 4, 3, 2]), 1, Penalties(presence=2))
    assert verify(target, (0, 0), (0, 1)).tokens == (1, 1, 0)
    assert verify(target, (0, 0), (1, 0)).tokens == (1, 0, 0)
    known = PenalizedTarget(Fixed([5, 4, 3, 2]), 1, Penalties(presence=2), known=2)
    assert verify(known, (0, 0), (1, 0)).tokens == (1, 1, 1)


def test_a_request_without_penalties_has_the_target_itself():
    target = Fixed([1, 2])
    assert with_penalties(target, request()) is target
    assert list(weakened_targets(target, request(), 3)) == []


def test_what_changed_a_choice_is_known_of_every_round():
    found: Counter[str] = Counter()
    for seed in range(40):
        case = penalised_scenario(seed)
        for names in run(case, solve(case)).told.values():
            found.update(names)
    assert set(found) == {
        "penalty_changed_choice",
        "penalty_by_draft_in_window",
        *(f"{name}_changed_choice" for name in ("bias", "repetition", "frequency", "presence")),
    }
    plain = penalised_scenario(0)
    plain = replace(plain, requests=(replace(plain.requests[0], penalties=None),))
    assert not any(run(plain, solve(plain)).told.values())
