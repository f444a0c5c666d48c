"""What plans force of sampled requests (S-SAMPLE-7), from the words of the definition."""

import random
from collections import Counter
from typing import get_args

from msgspec.structs import replace
from msgspec.structs import replace as put

from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import RoundPlan, Scenario, Wrong
from draftproof.reference.build import build
from draftproof.reference.memo import Memo
from draftproof.reference.sampling import ACCEPT, coins, probe_weights
from draftproof.reference.solve import solve
from tests.reference.scenarios import model, request, scenario


def sampled_scenario(seed: int) -> Scenario:
    rng = random.Random(seed)
    plans = tuple(
        RoundPlan(num_drafts=drafts, num_correct=rng.randint(0, drafts), wrong=rng.choice(get_args(Wrong)))
        for drafts in (rng.randint(0, 4) for _ in range(3))
    )
    sampling = Sampling(
        temperature=rng.choice((1 / 16, 1.0, 4.0, 64.0)), top_k=rng.choice((None, 1, 3)), seed=rng.getrandbits(63)
    )
    one = put(request(prompt=3, budget=14), rounds=plans, sampling=sampling, stops=rng.choice(((), (3,), (1, 2))))
    return scenario(one, of=model(vocab=rng.choice((4, 23)), agreement=rng.choice((0, 256))))


def put_in_place(kind: Wrong, right: int, vocab: int, stops: tuple[int, ...]) -> int:
    """Return the token that S-PLAN-3 puts in place of a right one."""
    following = (right + 1) % vocab
    found = {
        "next": following,
        "zero": 0,
        "last": vocab - 1,
        "stop": min(stops, default=following),
        "far": (right + vocab // 2) % vocab,
    }[kind]
    return following if found == right else found


def test_a_plan_forces_what_the_coins_accept_and_in_one_place_what_they_reject():
    seen: Counter[str] = Counter()
    for seed in range(100):
        case = sampled_scenario(seed)
        (one,) = case.requests
        assert one.sampling
        (target, _), vocab = build(case, Memo()), case.model.vocab
        (script,) = solve(case).requests
        text = one.prompt + script.tokens[:1]
        for number, round_ in enumerate(script.rounds):
            plan, forced = one.rounds[number % len(one.rounds)], round_.forced or ()
            assert len(forced) == round_.drafts
            for place, draft in enumerate(forced):
                weights = probe_weights(target.forward(text + forced[:place]).logits[-1], one.sampling)
                coin = coins(one.sampling.seed, len(text) + place)(ACCEPT, sum(weights))
                right, rejected = weights.index(max(weights)), [weight <= coin for weight in weights]
                if place != plan.num_correct:
                    assert draft == right
                    seen["right one rejected" if rejected[right] else "right one accepted"] += 1
                    continue
                first = put_in_place(plan.wrong, right, vocab, one.stops)
                order = [(first + step) % vocab for step in range(vocab) if (first + step) % vocab != right]
                able = [token for token in order if rejected[token]]
                assert draft == next(iter([*(token for token in able if weights[token]), *able, *order]))
                seen[f"wrong one {plan.wrong}"] += 1
                seen["none would be rejected"] += not any(rejected)
                seen["every one would be"] += all(rejected)
                seen["another one than S-PLAN-3's"] += draft != first
            text += round_.emitted
        assert text == one.prompt + script.tokens
    assert len(seen) == 10
    assert min(seen.values()) >= 5, seen


def test_a_request_stops_at_the_token_that_it_draws_as_the_number_asked_for():
    """S-PLAN-6: not at what greedy decoding emits there."""
    stopped, others = 0, 0
    for seed in range(60):
        case = sampled_scenario(seed)
        (one,) = case.requests
        free = solve(replace(case, requests=(replace(one, stops=()),))).requests[0].tokens
        for number in (0, 2, 5):
            asked = replace(one, stops=(), stop_at=number)
            (script,) = solve(replace(case, requests=(asked,))).requests
            if number >= len(free):
                assert (script.tokens, script.stop) == (free, ())
                continue
            assert script.stop == (free[number],)
            assert script.tokens == free[: free.index(free[number]) + 1]
            (plain,) = solve(replace(case, requests=(replace(asked, sampling=None),))).requests
            stopped, others = stopped + 1, others + (plain.stop != script.stop)
    assert stopped > 100
    assert others > 40


def test_what_is_forced_as_a_stop_token_does_not_hang_on_where_the_text_stops():
    case = sampled_scenario(3)
    (one,) = case.requests
    plans = (RoundPlan(num_drafts=3, num_correct=1, wrong="stop"),)
    one = replace(one, rounds=plans, stops=(2,), budget=14)
    (free,), (script,) = (solve(replace(case, requests=(replace(one, stop_at=number),))).requests for number in (-1, 4))
    assert script.tokens == free.tokens[: len(script.tokens)]
    assert [one.forced for one in script.rounds] == [one.forced for one in free.rounds[: len(script.rounds)]]
