"""Generated scenarios are valid, repeatable, varied from the first on, and shrink to what a person can read."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from draftproof.engine.subject import EngineSubject
from draftproof.harness.kernel_runs import cases
from draftproof.properties.strategies import scenarios as strategies
from draftproof.properties.strategies.examples import examples
from draftproof.properties.strategies.profiles import PROFILES, SIZES
from draftproof.properties.strategies.scenarios import scenarios
from draftproof.properties.strategies.turns import turns
from draftproof.properties.values.case import decode, encode
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm, Eagle
from draftproof.properties.values.observed import BatchRow
from draftproof.properties.values.scenario import VARIANTS, WRONG, Scenario
from draftproof.properties.values.validate import validate
from draftproof.reference.memo import Memo
from draftproof.reference.solve import solve
from tests.drawn import example, generate

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
    drawn = strategies.generate(4, 12)
    assert drawn == generate(4, 12)
    assert drawn[:9] == strategies.generate(4, 9)
    assert drawn[:9] != generate(1, 9)


DRAWS = """
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.values.case import encode
from draftproof.properties.values.drafts import ALGORITHMS
print(*map(encode, generate(3, 25, ALGORITHMS)), sep="\\n")
print("calls of kernels")
from draftproof.harness.kernel_runs import cases
print([cases(op, 3, 12) for op in ("gdn_update", "kv_write")])
"""


def test_draws_do_not_depend_on_what_is_imported() -> None:
    """This process has imported the engine; the other one imports the strategies only.

    Elements of kernels' calls are wide integers, among which Hypothesis would mix constants of what is imported.
    """
    assert EngineSubject.name == "engine"
    alone = subprocess.run([sys.executable, "-c", DRAWS], capture_output=True, text=True, check=True).stdout
    scenarios, calls = alone.split("\ncalls of kernels\n")
    assert scenarios == "\n".join(map(encode, strategies.generate(3, 25, ALGORITHMS)))
    assert calls.rstrip("\n") == str([cases(op, 3, 12) for op in ("gdn_update", "kv_write")])


def test_lists_hold_few_repeats() -> None:
    drawn = generate(4, 40)
    assert len(drawn) == 40
    assert len({encode(scenario) for scenario in drawn}) >= 38


def test_every_relation_and_poison_is_drawn() -> None:
    drawn = generate(4, 150)
    assert {scenario.variant for scenario in drawn} == {"none", *VARIANTS}
    assert {scenario.memory.poison for scenario in drawn} == {0, 1}
    share = sum(bool(scenario.graphs.sizes) for scenario in drawn) / len(drawn)
    assert 0.7 < share < 0.98


def test_half_are_hybrid_or_adaptive_and_both_ways_to_commit_take_turns() -> None:
    drawn = generate(4, 72)
    hybrid = [scenario for scenario in drawn if scenario.model.linear]
    assert 0.4 < len(hybrid) / len(drawn) < 0.7
    commits = Counter(scenario.states.commit for scenario in hybrid)
    # A tree, of a dense target, may take the place of either, and those that are preempted have a deck of their own.
    assert abs(commits["snapshot"] - commits["replay"]) <= 6
    assert {scenario.states.checkpoint for scenario in hybrid} >= {0, 1, 2, 3, 4, 7}
    assert {scenario.model.linear.start for scenario in hybrid} == {True, False}
    assert all(scenario.model.linear for scenario in drawn if scenario.variant == "other_commit")
    adaptive = [scenario for scenario in drawn if scenario.adaptive]
    # Few begin with the most steps that they may choose.
    more = [scenario for scenario in generate(5, 72) if scenario.adaptive]
    assert {scenario.adaptive.initial < scenario.steps for scenario in (*adaptive, *more)} == {True, False}
    assert {bool(scenario.model.linear) for scenario in adaptive} == {True, False}
    assert any(scenario.schedule.draft_batch for scenario in drawn)


@pytest.mark.parametrize("first", range(0, 36, 9))
def test_any_half_rotation_has_every_kind(first: int) -> None:
    drawn = generate(4, 45)[first : first + 9]
    kinds = {(bool(scenario.model.linear), scenario.adaptive is not None) for scenario in drawn}
    assert len(kinds) >= 3


def test_sizes_are_pairwise_distinct_but_in_a_fifth_of_models() -> None:
    listed = list(zip(generate(4, 60), turns(4, 60, ALGORITHMS[:1]), strict=True))
    assert sum(bool(turn.alike) for _, turn in listed) == 12
    for scenario, turn in listed:
        model, head, linear = scenario.model, scenario.draft, scenario.model.linear
        distinct = [model.key_dim, head.key_dim, model.lanes]
        if "keys" in turn.alike:
            assert (model.key_dim, head.key_dim) == (model.value_dim, head.value_dim)
        else:
            distinct += [model.value_dim, head.value_dim]
        if "widths" in turn.alike:
            assert head.lanes == model.lanes
        else:
            distinct.append(head.lanes)
        assert len(set(distinct)) == len(distinct), distinct
        if linear is not None:
            assert linear.value_heads // scenario.ranks.tensor not in (linear.key_dim, linear.value_dim)
            assert (linear.key_dim == linear.value_dim) == ("states" in turn.alike)


def test_the_simplest_is_one_short_eager_request() -> None:
    """Every first example is what shrinking tends to."""
    assert_simple(examples(scenarios("any"), 0, 1)[0])


def test_shrinking_ends_at_one_short_eager_request() -> None:
    assert_simple(find(scenarios("any"), lambda _: True, settings=settings(database=None)))


def assert_simple(smallest: Scenario) -> None:
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


@pytest.mark.parametrize("drafts", [*combinations(ALGORITHMS, 1), ALGORITHMS[:3], ALGORITHMS], ids=len)
def test_the_first_twenty_hold_a_wide_and_a_long_one(drafts: tuple[Algorithm, ...]) -> None:
    for seed in range(50):
        sizes = Counter(turn.size.name for turn in turns(seed, 40, drafts))
        first = Counter(turn.size.name for turn in turns(seed, 20, drafts))
        assert first == {size.name: size.share for size in SIZES}
        assert sizes == {size.name: 2 * size.share for size in SIZES}


def test_drafts_take_turns_at_long_and_wide_ones() -> None:
    for size in ("long", "wide"):
        met = Counter(turn.draft for turn in turns(1, 20 * len(ALGORITHMS), ALGORITHMS) if turn.size.name == size)
        assert set(met) == set(ALGORITHMS)


def test_long_ones_have_long_prompts_chunks_and_pages() -> None:
    """With few requests; what else there is to be long for: sums over hundreds of positions, tables of many pages."""
    long = [one for seed in range(5) for one in sized("long", seed)]
    lengths = [len(request.prompt) for one in long for request in one.requests]
    assert min(lengths) >= 33
    assert max(lengths) > 256
    assert {one.memory.page_size for one in long} == {8, 16, 64}
    assert {one.schedule.chunk > 100 for one in long} == {True, False}
    assert all(len(one.requests) <= 4 for one in long)


def test_wide_ones_have_many_drafts_rows_and_captured_sizes() -> None:
    wide = [one for seed in range(5) for one in sized("wide", seed)]
    assert max(one.steps for one in wide) == 16
    assert all(one.steps >= 7 and len(one.requests) >= 6 for one in wide)
    assert max(one.schedule.max_batch for one in wide) > 16
    assert max(max(one.graphs.sizes, default=0) for one in wide) >= 16


def test_a_wide_one_runs_all_its_drafts_in_batches_of_many_rows() -> None:
    static = [one for one in sized("wide", 2) if one.adaptive is None and not one.schedule.draft_batch]
    scenario = next(one for one in static if one.schedule.max_batch > 7)
    trace = EngineSubject(device="cpu").run(scenario, solve(scenario, Memo()))
    rows = [row for row in trace.typed("round.rows", BatchRow).values() if row.phase]
    assert max(row.count for row in rows) > 7
    assert max(Counter(row.step for row in rows).values()) > 4


def test_some_requests_have_several_stop_tokens() -> None:
    """Of these, that which ends a request may be the lowest, the highest or one between; some of them never come."""
    drawn = [request for scenario in generate(4, 240) for request in scenario.requests]
    requests = [request for request in drawn if not request.grammar]
    assert 0.2 < sum(bool(request.stops) for request in requests) / len(requests) < 0.6
    assert {len(request.stops) for request in requests} == {0, 1, 2, 3}


def test_drafts_are_wrong_in_every_way() -> None:
    plans = [plan for scenario in generate(4, 60) for request in scenario.requests for plan in request.rounds]
    wrong = Counter(plan.wrong for plan in plans if 0 <= plan.num_correct < plan.num_drafts)
    assert set(wrong) == set(WRONG)
    assert min(wrong.values()) > 0.1 * wrong.total()


def sized(name: str, seed: int) -> list[Scenario]:
    """The scenarios of one size in the first forty of a list."""
    return [example(seed, turn) for turn in turns(seed, 40, ALGORITHMS[:1]) if turn.size.name == name]
