"""Shrinking: every candidate is valid and smaller, and what is left is as small as its failure lets it be."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pytest

from draftproof.fuzz.shrinking.reductions import PASSES, of_pass
from draftproof.fuzz.shrinking.shrink import ALIKE, confirm, shrink
from draftproof.fuzz.shrinking.size import rounds, size, tokens_of
from draftproof.harness.identity import Identity
from draftproof.harness.workers.messages import Answer, Place
from draftproof.properties.features import FEATURES, FEATURES_BY_NAME, features_of
from draftproof.properties.fit import fit
from draftproof.properties.formats.case import decode, encode
from draftproof.properties.lib.paths import get, lower, put, without
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.relations import OffBy, Relation, Stale
from draftproof.properties.values.scenario import Checkpoint, Request, RoundPlan, Scenario
from draftproof.properties.values.verdict import Divergence, Outcome
from tests.named import OF_DRAFT, named, names
from tests.properties.evidence import BLOCK

SCENARIOS = list(map(named, names()))
LARGE = named("five_in_graphs")

ONE_AHEAD = OffBy(1)


def divergence(
    contract: str = "accept.greedy", channel: str = "accept.bonus", relation: Relation = ONE_AHEAD
) -> Divergence:
    place = {"request": 0, "round": 1, "step": -1, "layer": -1, "row": -1, "index": -1}
    return Divergence(
        contract=contract, channel=channel, phase="accept", expected="1", got="2", relation=relation, **place
    )


PASSES_ = Answer(number=0, outcome=Outcome.PASS)
FAILS = Answer(number=0, outcome=Outcome.FAIL, first=divergence())


def failing(holds: Callable[[Scenario], bool], log: list[Scenario] | None = None):
    """A run in which a scenario fails if `holds` says so."""

    def run(scenarios: Sequence[Scenario]) -> list[Answer]:
        if log is not None:
            log.extend(scenarios)
        return [FAILS if holds(scenario) else PASSES_ for scenario in scenarios]

    return run


def shrunk(scenario: Scenario, holds: Callable[[Scenario], bool], **options):
    return shrink(scenario, FAILS, failing(holds), budget=60.0, **options)


def candidates(scenario: Scenario) -> Iterator[Scenario]:
    return itertools.chain.from_iterable(of_pass(one, scenario) for one in PASSES)


@pytest.mark.parametrize("name", ["eagle_padded", "hybrid_replay", "ends", "tree_eagle", "mixed_eagle", "by_batch"])
def test_candidates_are_valid_and_smaller(name):
    scenario = named(name)
    made = list(candidates(scenario))
    assert len(made) > 20
    for candidate in made:
        assert validate(decode(encode(candidate), Scenario)) == candidate
        assert size(candidate) < size(scenario)


def test_every_pass_has_something_to_try():
    idle = [one for one in PASSES if not any(True for scenario in SCENARIOS for _ in of_pass(one, scenario))]
    assert idle == []


def test_the_boldest_comes_first():
    assert len(LARGE.requests) > 1
    assert len(next(candidates(LARGE)).requests) == 1
    after = [next(of_pass(one, LARGE), None) for one in PASSES]
    plain = after[1]
    assert plain is not None
    assert (plain.graphs.sizes, plain.variant, plain.memory.page_seed, plain.model.seed) == ((), "none", 0, 0)


def test_whatever_always_fails_ends_as_the_smallest_scenario_of_its_draft():
    for algorithm in ALGORITHMS:
        scenario = named(OF_DRAFT[algorithm])
        found = shrunk(scenario, lambda _: True)
        left = found.scenario
        assert found.done
        assert type(left.draft) is type(scenario.draft)
        assert [len(request.prompt) for request in left.requests] == [1]
        assert left.requests[0].budget == 1
        assert (left.steps, left.graphs.sizes, left.variant, features_of(left)) == (1, (), "none", ())
        assert (left.model.layers, left.model.types, left.memory.page_size) == (1, ("full_attention",), 1)
        assert (left.schedule.max_batch, left.memory.request_slots, left.model.vocab) == (1, 1, 4)
        assert list(candidates(left)) == []


CONDITIONS: dict[str, Callable[[Scenario], bool]] = {
    "two requests in a graph": lambda s: len(s.requests) > 1 and bool(s.graphs.sizes) and s.graphs.sizes[-1] > 2,
    "a later plan": lambda s: any(plan.num_correct not in (0, -1) for one in s.requests for plan in one.rounds),
    "a prompt of three and a stop": lambda s: any(len(one.prompt) > 2 and one.stop_at >= 0 for one in s.requests),
    "pages and seeds": lambda s: s.memory.page_size > 1 and s.memory.pages > 3,
    "steps": lambda s: s.steps > 1 and any(rounds(one, s.memory.max_len) > 2 for one in s.requests),
}


@pytest.mark.parametrize("feature", FEATURES, ids=lambda one: one.name)
def test_a_feature_that_a_failure_needs_is_all_that_is_left(feature):
    """With those that it is nothing without, in few small requests."""
    scenario = next(one for one in SCENARIOS if feature.has(one))
    found = shrunk(scenario, feature.has)
    assert found.done
    assert set(features_of(found.scenario)) == {feature.name, *feature.needs}
    assert (found.scenario.variant, found.scenario.graphs.sizes) == ("none", ())
    assert len(found.scenario.requests) <= 2


@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("width", [1, 3])
def test_what_is_left_fails_and_nothing_smaller_that_is_tried_does(name, width):
    holds = CONDITIONS[name]
    scenario = next(one for one in sorted(SCENARIOS, key=size, reverse=True) if holds(one))
    found = shrunk(scenario, holds, width=width)
    assert found.done
    assert holds(found.scenario)
    assert not any(holds(candidate) for candidate in candidates(found.scenario))


def test_it_is_shrunk_to_what_the_failure_needs():
    holds = CONDITIONS["two requests in a graph"]
    left = shrunk(next(one for one in SCENARIOS if holds(one)), holds).scenario
    assert [len(request.prompt) for request in left.requests] == [1, 1]
    assert left.graphs.sizes == (3,)
    assert sum(rounds(request, left.memory.max_len) for request in left.requests) == 0


def test_nothing_is_run_twice_and_saved_ones_get_smaller():
    log: list[Scenario] = []
    saved: list[Scenario] = []
    found = shrink(LARGE, FAILS, failing(lambda s: s.steps > 1, log), budget=60.0, width=1, saved=saved.append)
    assert len(log) == len(set(log)) == found.tried
    sizes = [size(scenario) for scenario in (LARGE, *saved)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)
    assert saved[-1] == found.scenario


def test_only_what_the_subject_can_run_is_tried():
    taken = tuple(name for name in FEATURES_BY_NAME if name not in ("adaptive-steps", "draft-batch"))
    limits = Limits(page_sizes=(16, 32), variants=(), arrivals="serial", features=taken, allocation="ahead")
    log: list[Scenario] = []
    start = fit(LARGE, limits)
    found = shrink(start, FAILS, failing(lambda s: s.steps > 1, log), budget=60.0, limits=limits)
    assert size(found.scenario) < size(start)
    assert all(fit(one, limits) == one for one in log)
    assert found.scenario.memory.page_size == 16


def test_another_failure_is_not_followed():
    other = Answer(number=0, outcome=Outcome.FAIL, first=divergence(contract="commit.length", channel="commit.length"))

    def run(scenarios: Sequence[Scenario]) -> list[Answer]:
        return [FAILS if one.graphs.sizes else other for one in scenarios]

    scenario = named("eagle_padded")
    assert shrink(scenario, FAILS, run, budget=60.0).scenario.graphs.sizes


def crash(error: str, outcome: Outcome = Outcome.CRASH, launch: str = "verify") -> Answer:
    return Answer(number=0, outcome=outcome, error=error, place=Place(run="base", step=2, launch=launch))


@pytest.mark.parametrize(
    ("answer", "like", "expected"),
    [
        (FAILS, FAILS, True),
        (FAILS, Answer(number=1, outcome=Outcome.FAIL, first=divergence(relation=Stale("round", 1))), True),
        (FAILS, Answer(number=1, outcome=Outcome.FAIL, first=divergence(channel="accept.index")), False),
        (FAILS, crash("IndexError"), False),
        (crash("IndexError"), crash("IndexError", launch="draft"), True),
        (crash("IndexError"), crash("KeyError"), False),
        (crash("deadline", Outcome.HANG), crash("", Outcome.HANG), True),
        (crash("deadline", Outcome.HANG), crash("deadline"), False),
        (PASSES_, FAILS, False),
    ],
)
def test_what_is_alike(answer, like, expected):
    identity = like.identity
    assert identity is not None
    assert answer.is_same(identity, ALIKE) is expected


def test_without_time_nothing_is_tried():
    found = shrink(LARGE, FAILS, failing(lambda _: True), budget=0.0)
    assert (found.scenario, found.tried, found.done) == (LARGE, 0, False)


def test_it_goes_on_from_what_it_came_to():
    holds = CONDITIONS["steps"]
    large = max(filter(holds, SCENARIOS), key=size)
    count = 0

    def run(scenarios: Sequence[Scenario]) -> list[Answer]:
        nonlocal count
        count += 1
        if count > 6:
            raise KeyboardInterrupt
        return failing(holds)(scenarios)

    saved: list[Scenario] = []
    with pytest.raises(KeyboardInterrupt):
        shrink(large, FAILS, run, budget=60.0, saved=saved.append)
    again = shrunk(saved[-1], holds)
    assert again.done
    assert size(again.scenario) < size(saved[-1]) < size(large)


def test_the_budget_is_kept(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr("draftproof.fuzz.shrinking.shrink.time.monotonic", lambda: float(next(clock)))
    found = shrink(LARGE, FAILS, failing(lambda _: True), budget=5.0, width=1)
    assert not found.done
    assert found.tried == 4


@pytest.mark.parametrize(
    ("answer", "width", "message"), [(PASSES_, 1, "invalid outcome PASS"), (FAILS, 0, "invalid width 0")]
)
def test_what_cannot_be_shrunk(answer, width, message):
    with pytest.raises(ValueError, match=message):
        shrink(LARGE, answer, failing(lambda _: True), budget=1.0, width=width)


@pytest.mark.parametrize(("answers", "times"), [((1, 1, 1), 3), ((0, 1, 0), 1), ((0, 0, 0), 0)])
def test_confirmed_by_three_runs(answers, times):
    identity = FAILS.identity
    assert identity is not None
    made = [FAILS if fails else PASSES_ for fails in answers]
    assert confirm(LARGE, identity, lambda scenarios: made[: len(scenarios)]) == times
    assert confirm(LARGE, Identity(contract="other"), lambda scenarios: made[: len(scenarios)]) == 0


def test_rounds_and_the_budget_for_them():
    plans = (RoundPlan(num_drafts=3, num_correct=2), RoundPlan(num_drafts=2, num_correct=-1))
    request = Request(arrival=0, prompt=(1, 2), budget=9, rounds=plans)
    assert rounds(request, 64) == 4
    assert [rounds(msgspec.structs.replace(request, budget=tokens_of(request, n)), 64) for n in range(4)] == [
        0,
        1,
        2,
        3,
    ]
    assert rounds(request, 4) == 1
    assert rounds(msgspec.structs.replace(request, stop_at=3), 64) == 1


def test_layers_of_a_chain_follow_its_steps():
    scenario = named("mtp_chain_partial")
    left = shrunk(scenario, lambda s: s.steps > 1).scenario
    assert (left.steps, left.draft.layers) == (2, 2)


def test_features_of_layers_that_are_gone_are_dropped():
    assert BLOCK.draft.features == (2, 0)
    assert shrunk(BLOCK, lambda _: True).scenario.draft.features == (0,)


def test_a_real_model_keeps_what_it_is():
    model = Checkpoint(path="somewhere", vocab=99)
    scenario = validate(msgspec.structs.replace(named("ngram_matches"), model=model))
    left = shrunk(scenario, lambda _: True).scenario
    assert left.model == model
    assert len(left.requests) == 1


def test_fields_by_path():
    assert get(LARGE, "memory.page_size") == LARGE.memory.page_size
    assert get(LARGE, "adaptive_steps.warmup") is None or LARGE.adaptive_steps
    assert get(LARGE, "memory.nothing") is None
    assert put(LARGE, "memory.page_size", 7).memory.page_size == 7
    with pytest.raises(AttributeError):
        put(LARGE, "memory.nothing.more", 1)


def test_numbers_and_places_to_try():
    assert list(lower(9, 1)) == [1, 5, 7, 8]
    assert list(lower(2, 1)) == [1]
    assert list(lower(1, 1)) == []
    assert list(without(1)) == []
    assert list(without(3)) == [[0], [1], [2], [1, 2], [0, 2], [0, 1]]
