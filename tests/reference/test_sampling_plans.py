"""What plans force of sampled requests (S-SAMPLE-7), from the words of the definition."""

from __future__ import annotations

import random
from functools import partial

import msgspec

from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.validate import validate
from draftproof.reference.build import build
from draftproof.reference.memo import Memo
from draftproof.reference.sampling import ACCEPT, coins, probe_weights
from draftproof.reference.solve import solve
from tests.reference.scenarios import model, request, scenario


def rejected(weights: list[int], token: int, number: int) -> bool:
    return number >= weights[token]


def sampled_scenario(seed: int) -> Scenario:
    rng = random.Random(seed)
    plans = tuple((drafts := rng.randint(0, 4), rng.randint(0, drafts)) for _ in range(3))
    sampling = Sampling(
        temperature=rng.choice((1 / 16, 1.0, 4.0, 64.0)), top_k=rng.choice((None, 1, 3)), seed=rng.getrandbits(63)
    )
    one = msgspec.structs.replace(request(prompt=3, budget=14, rounds=plans), sampling=sampling)
    return validate(scenario(one, of=model(vocab=rng.choice((4, 23)), agreement=rng.choice((0, 256)))))


def test_a_plan_forces_what_the_coins_accept_and_in_one_place_what_they_reject():
    """S-SAMPLE-7, word for word, of every forced draft of 60 scenarios."""
    seen = dict.fromkeys(("accepted", "all rejected", "all accepted", "rejected", "right one cut by the coin"), 0)
    for seed in range(60):
        case = sampled_scenario(seed)
        (one,) = case.requests
        target, _ = build(case, Memo())
        weights_of = partial(lambda text, target, how: probe_weights(target.forward(text).logits[-1], how))
        script = solve(case).requests[0]
        text = one.prompt + script.tokens[:1]
        for number, round_ in enumerate(script.rounds):
            plan = one.rounds[number % len(one.rounds)]
            forced = round_.forced or ()
            for place, draft in enumerate(forced):
                weights = weights_of(text + forced[:place], target, one.sampling)
                coin = coins(one.sampling.seed, len(text) + place)(ACCEPT, sum(weights))
                right = weights.index(max(weights))
                if place != plan.num_correct:
                    assert draft == right
                    seen["accepted" if coin < weights[right] else "right one cut by the coin"] += 1
                    continue
                free = [token for token in range(len(weights)) if rejected(weights, token, coin)]
                next_ = (right + 1) % len(weights)
                order = [(next_ + step) % len(weights) for step in range(len(weights))]
                assert draft == next((token for token in order if token in free), next_)
                assert draft != right
                seen["rejected" if free else "all accepted"] += 1
                seen["all rejected"] += len(free) == len(weights)
            text += round_.emitted
        assert text == one.prompt + script.tokens
    assert min(seen.values()) >= 1, seen
