"""Scripts of dynamic scenarios: chains, and rounds that are known only once a subject ran."""

import random

import msgspec
import pytest
from hypothesis import given

from draftproof.properties.values.adaptive_steps import Adaptive
from draftproof.properties.values.scenario import Scenario, round_plan
from draftproof.properties.values.script import Script, forced
from draftproof.reference.memo import Memo
from draftproof.reference.run import ReferenceSubject, run
from draftproof.reference.solve import resolve, solve
from tests.reference.scenarios import BRIEF, request, scenario, scenarios


def dynamic(made: Scenario) -> Scenario:
    return msgspec.structs.replace(made, adaptive_steps=Adaptive(initial=made.steps, candidates=(1,)))


def with_drafts(made: Scenario, count: int) -> Scenario:
    """Every plan cut to at most `count` drafts and as many right ones."""
    requests = []
    for asked in made.requests:
        plans = tuple(
            msgspec.structs.replace(one, num_drafts=min(one.num_drafts, count), num_correct=min(one.num_correct, count))
            for one in asked.rounds
        )
        requests.append(msgspec.structs.replace(asked, rounds=plans))
    return msgspec.structs.replace(made, requests=tuple(requests))


def rounds(script: Script) -> list[tuple]:
    return [(one.tokens, one.stop, one.rounds) for one in script.requests]


@BRIEF
@given(scenarios())
def test_resolved_with_the_plans_it_is_the_static_script(made: Scenario) -> None:
    """And with fewer drafts, that of a scenario which plans for no more: a chain's beginning is a chain."""
    asked = dynamic(made)
    script, memo = solve(asked), Memo()
    assert all(one.rounds == () for one in script.requests)
    assert rounds(resolve(asked, script, {}, memo)) == rounds(solve(made, memo))
    for count in range(made.steps + 1):
        given_ = {(index, round_): count for index in range(len(made.requests)) for round_ in range(1, 20)}
        assert rounds(resolve(asked, script, given_, memo)) == rounds(solve(with_drafts(made, count), memo))


@BRIEF
@given(scenarios())
def test_chains_begin_as_a_shorter_round_is_forced(made: Scenario) -> None:
    """Whatever K each round gets: rounds forced, accepted and emitted as in a static scenario with just these K."""
    asked = dynamic(made)
    rng, script = random.Random(made.memory.max_len), solve(asked)
    given_ = {
        (index, round_): rng.randint(0, made.steps) for index in range(len(made.requests)) for round_ in range(40)
    }
    solved = resolve(asked, script, given_)
    for index, (one, before) in enumerate(zip(solved.requests, script.requests, strict=True)):
        assert one.tokens == before.tokens
        assert one.chains == before.chains
        assert len(one.chains) == len(one.tokens) - 1
        plans = [round_plan(made.requests[index], number) for number in range(1, len(one.rounds) + 1)]
        for number, (plan, round_) in enumerate(zip(plans, one.rounds, strict=True), start=1):
            assert round_.drafts <= min(plan.num_drafts, given_[index, number])
            assert (round_.forced is None) == (plan.num_correct < 0)
            if round_.forced is not None:
                assert round_.correct_len == min(plan.num_correct, round_.drafts)
        exactly = tuple(
            msgspec.structs.replace(plan, num_drafts=round_.depth, num_correct=min(plan.num_correct, round_.drafts))
            for plan, round_ in zip(plans, one.rounds, strict=True)
        )
        if exactly:
            static = msgspec.structs.replace(
                made, requests=(msgspec.structs.replace(made.requests[index], rounds=exactly),)
            )
            assert solve(static).requests[0].rounds == one.rounds


def test_the_script_of_a_dynamic_scenario_says_what_is_forced_where() -> None:
    made = dynamic(scenario(request(rounds=((3, 1), (2, -1)))))
    solved = solve(made).requests[0]
    for done in range(1, len(solved.tokens)):
        chain, free = solved.chains[done - 1]
        assert free is None
        assert len(chain) == made.steps
        assert chain[0] == solved.tokens[done]
        assert forced(solved, 1, done, 2) == forced(solved, 3, done, 2) == chain[:2]
        assert forced(solved, 2, done, 2) is None
    assert forced(solved, 1, len(solved.tokens), 2) is None


@pytest.mark.parametrize(("given_", "drafts"), [(-1, 0), (0, 0), (2, 2), (3, 3), (9, 3), (None, 3)])
def test_what_a_subject_says_is_kept_within_the_limits(given_: int | None, drafts: int) -> None:
    made = dynamic(scenario(request(rounds=((3, 1),))))
    told = {} if given_ is None else {(0, 1): given_, (1, 1): 7}
    assert resolve(made, solve(made), told).requests[0].rounds[0].drafts == drafts


def test_other_scripts_stay_as_they_are() -> None:
    made = scenario(request())
    script = solve(made)
    assert resolve(made, script, {(0, 1): 0}) is script
    assert script.requests[0].chains == ()


def test_a_script_without_its_rounds_is_not_run() -> None:
    made = dynamic(scenario(request()))
    with pytest.raises(ValueError, match="has no rounds"):
        run(made, solve(made))
    assert ReferenceSubject().run(made, solve(made)).channel("verify.ids")
