"""Generated scenarios are valid, repeatable, varied from the first on, and shrink to what a person can read."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from draftproof.engine.subject import EngineSubject
from draftproof.properties.strategies.scenarios import PROFILES, generate, scenarios
from draftproof.properties.values.case import decode, encode
from draftproof.properties.values.drafts import ALGORITHMS, Eagle
from draftproof.properties.values.observed import BatchRow
from draftproof.properties.values.scenario import VARIANTS, Scenario
from draftproof.properties.values.validate import validate
from draftproof.reference.memo import Memo
from draftproof.reference.solve import solve

FAST = settings(
    max_examples=60,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


@FAST
@given(scenarios())
def test_scenarios_are_valid_and_survive_json(scenario: Scenario) -> None:
    assert validate(scenario) == scenario
    assert decode(encode(scenario), Scenario) == scenario


def test_the_same_seed_gives_the_same_list_and_a_longer_one_begins_with_it() -> None:
    assert generate(5, 9) == generate(5, 9)
    assert generate(5, 30)[:9] == generate(5, 9)
    assert generate(5, 9) != generate(6, 9)


def test_a_list_does_not_depend_on_what_is_imported() -> None:
    """This process has imported the engine; the other one imports the strategies only."""
    code = (
        "from draftproof.properties.strategies.scenarios import generate\n"
        "from draftproof.properties.values.case import encode\n"
        "from draftproof.properties.values.drafts import ALGORITHMS\n"
        "print('\\n'.join(map(encode, generate(3, 40, ALGORITHMS))))"
    )
    assert EngineSubject.name == "engine"
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert alone.rstrip("\n") == "\n".join(map(encode, generate(3, 40, ALGORITHMS)))


def test_lists_hold_few_repeats() -> None:
    drawn = generate(2, 40)
    assert len(drawn) == 40
    assert len({encode(scenario) for scenario in drawn}) >= 38


def test_every_relation_and_poison_is_drawn() -> None:
    drawn = generate(3, 160)
    assert {scenario.variant for scenario in drawn} == {"none", *VARIANTS}
    assert {scenario.memory.poison for scenario in drawn} == {0, 1}
    share = sum(bool(scenario.graphs.sizes) for scenario in drawn) / len(drawn)
    assert 0.7 < share < 0.98


def test_half_are_hybrid_or_adaptive_and_both_ways_to_commit_take_turns() -> None:
    drawn = generate(6, 72)
    hybrid = [scenario for scenario in drawn if scenario.model.linear]
    assert 0.4 < len(hybrid) / len(drawn) < 0.6
    assert [scenario.states.commit for scenario in hybrid] == (["snapshot", "replay"] * len(hybrid))[: len(hybrid)]
    assert {scenario.states.checkpoint for scenario in hybrid} == {0, 1, 2, 3, 4, 7}
    assert {scenario.model.linear.start for scenario in hybrid} == {True, False}
    assert all(scenario.model.linear for scenario in drawn if scenario.variant == "other_commit")
    adaptive = [scenario for scenario in drawn if scenario.adaptive]
    assert {scenario.adaptive.initial < scenario.steps for scenario in adaptive} == {True, False}
    assert {bool(scenario.model.linear) for scenario in adaptive} == {True, False}
    assert any(scenario.schedule.draft_batch for scenario in drawn)


@pytest.mark.parametrize("first", range(0, 36, 9))
def test_any_half_rotation_has_every_kind(first: int) -> None:
    drawn = generate(7, 45)[first : first + 9]
    kinds = {(bool(scenario.model.linear), scenario.adaptive is not None) for scenario in drawn}
    assert len(kinds) >= 3


def test_sizes_are_pairwise_distinct() -> None:
    for scenario in generate(4, 24):
        model, head = scenario.model, scenario.draft
        sizes = [model.key_dim, model.value_dim, head.key_dim, head.value_dim, model.lanes, head.lanes]
        assert len(set(sizes)) == len(sizes), sizes
        linear = model.linear
        assert not linear or len({linear.key_dim, linear.value_dim, linear.value_heads}) == 3


def test_shrinking_ends_at_one_short_eager_request() -> None:
    smallest = find(scenarios("any"), lambda _: True, settings=settings(database=None))
    assert smallest.graphs.sizes == ()
    assert len(smallest.requests) == smallest.memory.page_size == smallest.model.layers == smallest.steps == 1
    assert len(smallest.requests[0].prompt) <= 2
    assert smallest.variant == "none"
    assert isinstance(smallest.draft, Eagle)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_a_profile_keeps_its_minimum(profile) -> None:
    found: list[Scenario] = []

    @settings(FAST, max_examples=10)
    @given(scenarios(profile, "eagle"))
    def collect(scenario: Scenario) -> None:
        found.append(scenario)

    collect()
    assert all(len(one.requests) >= profile.requests and one.steps >= profile.steps for one in found)


@pytest.mark.parametrize("seed", range(4))
def test_wide_rounds_and_batches_come_up(seed: int) -> None:
    """Seven drafts a round, in every other one by a controller that rises; five decode, two end with their prefill."""
    fixed, adaptive = (generate(seed, 75)[index] for index in (33, 74))
    assert (fixed.steps, fixed.adaptive) == (7, None)
    assert adaptive.adaptive is not None
    assert adaptive.adaptive.steps == (1, 3, 7)
    for scenario in (fixed, adaptive):
        assert [request.budget == 1 for request in scenario.requests] == [False] * 5 + [True] * 2
        trace = EngineSubject(device="cpu").run(scenario, solve(scenario, Memo()))
        rows = [row for row in trace.typed("round.rows", BatchRow).values() if row.phase]
        assert max(row.count for row in rows) == 7
        assert max(Counter(row.step for row in rows).values()) == 5
