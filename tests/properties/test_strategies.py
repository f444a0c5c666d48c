"""Generated lists are functions of their arguments, all that may be together meets in them, and Hypothesis shrinks."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from itertools import combinations, product
from random import Random
from statistics import mean
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from draftproof import checkpoint_scenarios
from draftproof.properties.choose import SeededChoose
from draftproof.properties.features import FEATURES, FEATURES_BY_NAME, features_of, refusal
from draftproof.properties.features.feature import Feature
from draftproof.properties.fit import fit
from draftproof.properties.formats.case import decode, encode
from draftproof.properties.lib.errors import InputError
from draftproof.properties.strategies import scenarios as strategies
from draftproof.properties.strategies.cost import cost_of
from draftproof.properties.strategies.covering import LEADS, Array
from draftproof.properties.strategies.drawn import scenarios
from draftproof.properties.strategies.quantities import work_of
from draftproof.properties.strategies.rows import CHOSEN, PROMISED, ArrayRow, Point, points_of
from draftproof.properties.strategies.scenarios import Listed
from draftproof.properties.strategies.shapes import SHAPES, SIZES
from draftproof.properties.strategies.version import STRATEGIES_VERSION
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import ALGORITHMS, CHECK_EXAMPLES, DRAFT_KINDS, Algorithm, Eagle, algorithm
from draftproof.properties.values.limits import NO_LIMITS
from draftproof.properties.values.scenario import VARIANTS, WRONG, Scenario
from tests.named import named
from tests.properties.facts import each, needing
from tests.properties.lists import listed

RECORDED = (80, "2376a940fe98c35f63d219d7046980dd13923b9b292c0a1928f50064eb760df4")
"""A version of the strategies, and the fingerprint of what it generates."""
SOON = 160
"""Scenarios of one draft in which every promised pair meets."""
FAST = settings(
    max_examples=40,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
SEARCH = settings(FAST, max_examples=1000)


def generate(seed: int, count: int = CHECK_EXAMPLES) -> list[Scenario]:
    return [one.scenario for one in listed(seed)[:count]]


def test_what_a_seed_generates_changes_with_the_version_only() -> None:
    """After a change on purpose: raise STRATEGIES_VERSION in properties/strategies/version.py, and record both here."""
    texts = "\n".join(map(encode, generate(0, 12)))
    assert (STRATEGIES_VERSION, hashlib.sha256(texts.encode()).hexdigest()) == RECORDED


def test_the_same_arguments_give_the_same_list_and_a_longer_one_begins_with_it() -> None:
    made = strategies.generate(4, 12)
    assert made == strategies.generate(4, 12, ("eagle",))
    assert made[:9] == strategies.generate(4, 9)
    assert made[:9] != strategies.generate(1, 9)
    assert generate(0, 9) == strategies.generate(0, 9, ALGORITHMS)
    assert list(strategies.generated(4, 9)) == made[:9]
    assert [one.scenario for one in strategies.listed(4, 9)] == made[:9]


@pytest.mark.parametrize(
    ("features", "drafts"),
    [
        (("overlap", "prefix-cache", "mixed", "preemption", "sampling"), ALGORITHMS),
        (("disaggregation", "mrope"), ALGORITHMS),
        (("tensor-parallel",), ALGORITHMS),
        # No other draft makes trees.
        (("trees", "overlap"), ("eagle", "ngram")),
    ],
)
def test_three_of_four_scenarios_of_a_list_have_the_features_that_it_is_of(
    features: tuple[str, ...], drafts: tuple[Algorithm, ...]
) -> None:
    """What was drawn cannot always be run with all of them, and ranks have overlap or mixed steps."""
    made = list(strategies.generated(5, 60, drafts, features=features))
    assert sum({*features_of(one)}.issuperset(features) for one in made) >= 45
    assert len({algorithm(one.draft) for one in made}) == len(drafts)
    others = [frozenset(features_of(one)) - set(features) for one in made]
    assert len(set(others)) > 40


MADE_ALONE = """
import sys
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.formats.case import encode
from draftproof.properties.values.drafts import ALGORITHMS
print(*map(encode, generate(0, 12, ALGORITHMS)), sep="\\n")
names = ("hypothesis", "draftproof.engine", "draftproof.kernels", "draftproof.reference")
loaded = [name for name in sys.modules if name.startswith(names)]
assert not loaded, loaded
"""


def test_a_list_takes_nothing_of_hypothesis_and_does_not_depend_on_what_is_imported() -> None:
    alone = subprocess.run([sys.executable, "-P", "-c", MADE_ALONE], capture_output=True, text=True, check=True).stdout
    assert alone.rstrip("\n") == "\n".join(map(encode, generate(0, 12)))


_DRAFTS = f"expected a tuple of some of {', '.join(ALGORITHMS)}, each once"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0, 1, ()), _DRAFTS),
        ((0, 1, ("eagle", "eagle")), _DRAFTS),
        ((0, 1, ("medusa",)), _DRAFTS),
        ((0, 1, "eagle"), f"invalid drafts 'eagle': {_DRAFTS}"),
        ((0, 1, None), f"invalid drafts None: {_DRAFTS}"),
        ((0, 0), "invalid count 0: expected a whole number, 1 or more"),
        ((-1, 1), "invalid seed -1: expected a whole number, 0 .. 4294967295"),
        (("3", 1), "invalid seed '3': expected a whole number"),
    ],
)
def test_other_lists_are_refused(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        strategies.generate(*arguments)


def test_another_draft_is_refused() -> None:
    with pytest.raises(InputError, match="invalid draft 'medusa': expected None, or one of eagle"):
        scenarios("medusa")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="invalid draft 'dflash': expected one without a directory of its own, eagle"):
        checkpoint_scenarios("somewhere", draft="dflash")
    with pytest.raises(InputError, match="invalid draft 'ngram': expected one with a directory of its own, eagle"):
        checkpoint_scenarios("somewhere", draft="ngram", draft_model="elsewhere")


@pytest.mark.parametrize("seed", [0, 1])
def test_every_scenario_is_valid_fits_itself_and_survives_json(seed: int) -> None:
    made = generate(seed)
    for scenario in made:
        assert validate(scenario) is scenario
        assert fit(scenario, NO_LIMITS) == scenario
        assert decode(encode(scenario), Scenario) == scenario
    assert len({encode(scenario) for scenario in made}) == len(made)


def apart(made: list[Listed], drafts: tuple[Algorithm, ...]) -> tuple[list[str], int]:
    """Return the promised pairs that a list does not have, read off its scenarios, and how many are promised."""
    array = Array("", drafts)
    promised = len(array.missing())
    for one in made:
        array.meet(points_of(one.scenario))
    return [f"{first} with {other}" for first, other in array.missing()], promised


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_pair_that_may_be_together_meets(seed: int) -> None:
    some, promised = apart(listed(seed), ALGORITHMS)
    assert promised > len(PROMISED)
    assert some == []


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_pair_of_one_draft_meets_soon(name: Algorithm) -> None:
    made = list(strategies.listed(1, SOON, (name,)))
    assert apart(made, (name,))[0] == []
    assert {algorithm(one.scenario.draft) for one in made} == {name}


def test_a_list_tells_how_much_has_met() -> None:
    last = listed(0)[-1].met
    missing, promised = apart(listed(0), ALGORITHMS)
    assert (last.pairs, last.all_pairs) == (promised - len(missing), promised)
    assert 0.5 < last.triples / last.all_triples < 1


def test_drafts_take_turns() -> None:
    made = generate(1, 60)
    assert [algorithm(one.draft) for one in made] == [ALGORITHMS[place % len(ALGORITHMS)] for place in range(60)]
    assert [algorithm(one.draft) for one in strategies.generate(1, 6, ("mtp", "ngram"))] == ["mtp", "ngram"] * 3


def test_only_sizes_that_were_asked_for_come() -> None:
    assert {one.row.size for one in listed(0)} == {size.name for size in SIZES}
    for size in SIZES:
        assert {one.row.size for one in strategies.listed(0, 8, ALGORITHMS, (size,))} == {size.name}


def test_a_scenario_is_as_large_as_its_row_says() -> None:
    of: dict[str, list[Scenario]] = {size.name: [] for size in SIZES}
    for number, (size, draft, steps) in enumerate(product(SIZES, ALGORITHMS, ("one", "several", "many") * 3)):
        row = ArrayRow(draft=draft, size=size.name, steps=steps, shape=SHAPES[number % len(SHAPES)].name)  # type: ignore[arg-type]
        made, _ = strategies.scenario_of(SeededChoose(str(number)), row)
        of[size.name].append(made)
        assert {"one": made.steps == 1, "several": 1 < made.steps <= 5, "many": made.steps > 5}[steps]
    assert min(max(len(request.prompt) for request in one.requests) for one in of["long"]) >= 33
    assert max(len(request.prompt) for one in of["long"] for request in one.requests) > 256
    assert all(len(one.requests) >= 8 for one in of["wide"])
    assert max(one.schedule.max_batch for one in of["wide"]) > 16
    assert all(len(one.requests) < 8 for one in of["small"])


def test_what_a_row_asks_for_is_in_its_scenario() -> None:
    """A row that did not come out is told as it came out; few features are lost beside others."""
    lost = 0
    for one in listed(0):
        points = points_of(one.scenario)
        asked = {point.value for point in points if point.dimension == "feature"}
        lost += len(one.row.features - asked)
        draft = one.scenario.draft
        for form, value in one.row.forms:
            if form in ("takes", "handed", "match"):
                assert getattr(draft, form) == value
            if form in ("embedding", "head"):
                assert getattr(draft, f"own_{form}") == (value == "own")
            if form == "first":
                assert draft.masks_first == (value == "masked")  # type: ignore[union-attr]
            if form == "chain":
                assert draft.chain == (value == "chained")  # type: ignore[union-attr]
    assert lost <= CHECK_EXAMPLES / 10


def test_every_shape_relation_and_poison_is_drawn() -> None:
    made = listed(0)
    assert {one.row.shape for one in made} == {shape.name for shape in SHAPES}
    assert {one.scenario.variant for one in made} == {"none", *VARIANTS}
    assert {one.scenario.memory.poison for one in made} == {0, 1}
    share = sum(one.scenario.variant == "none" for one in made) / len(made)
    assert 0.2 < share < 0.8, "a variant is a second run"


def test_scenarios_have_few_features_or_many() -> None:
    counts = Counter(len(one.row.features) for one in listed(0))
    assert sum(counts[number] for number in range(4)) > CHECK_EXAMPLES / 20
    assert sum(count for number, count in counts.items() if number > 5) > CHECK_EXAMPLES / 10


def test_sizes_are_pairwise_distinct_in_most_models() -> None:
    made = [one for one in generate(1) if hasattr(one.draft, "key_dim")]
    distinct = 0
    for one in made:
        model, draft = one.model, one.draft
        sizes = [model.key_dim, model.value_dim, draft.key_dim, draft.value_dim]  # type: ignore[union-attr]
        distinct += len(set(sizes)) == len(sizes)
        if one.model.linear is not None:  # type: ignore[union-attr]
            linear = one.model.linear  # type: ignore[union-attr]
            assert linear.value_heads // one.ranks.tensor not in (linear.key_dim, linear.value_dim)
    assert 0.7 < distinct / len(made) < 1


@pytest.mark.parametrize(
    "lead", sorted({lead for lead in LEADS if len(lead) > 1}), ids=lambda lead: " ".join(map(str, lead))
)
def test_what_contracts_ask_for_beside_each_other_comes_in_every_list(lead: tuple[Point, ...]) -> None:
    least = 8 if len(lead) == 2 else 1
    assert sum(set(lead) <= set(points_of(one.scenario)) for one in listed(0)) >= least


def test_a_row_is_made_smaller_until_it_can_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "MOST_WORK", 150.0)
    made = list(strategies.listed(5, 24, ALGORITHMS))
    assert max(work_of(one.scenario) for one in made) <= 150.0
    monkeypatch.setattr(strategies, "MOST_WORK", 0.0)
    with pytest.raises(AssertionError, match=r"no scenario of ArrayRow\(.*size='small'.* can be run"):
        strategies.generate(5, 1)


def test_of_scenarios_that_meet_the_same_the_cheapest_comes_but_some_are_as_they_come() -> None:
    """The first are large, because short runs see these only. What is dear is rarer than it is drawn, and is there."""
    made = generate(0) + generate(1)
    assert mean(map(cost_of, generate(0, 24))) > mean(map(cost_of, generate(0)))
    assert sum(len(one.requests) == 1 for one in made) >= 1
    assert sum(len(one.requests) > 25 for one in made) >= 4
    assert sum(max(len(of.prompt) for of in one.requests) > 256 for one in made) >= 4
    assert sum(one.ranks.size > 2 for one in made) >= 4


def test_an_array_tells_how_many_pairs_would_be_new() -> None:
    first, second = (points_of(one) for one in generate(0, 2))
    array = Array("", ALGORITHMS)
    before = len(array.missing())
    found = array.new_pairs(first)
    array.meet(first)
    assert len(array.missing()) == before - found
    assert array.new_pairs(first) == 0 < array.new_pairs(second)


def test_some_requests_have_several_stop_tokens() -> None:
    """Of these, that which ends a request may be the lowest, the highest or one between; some of them never come."""
    drawn = [request for scenario in generate(0) for request in scenario.requests]
    assert {len(request.stops) for request in drawn} >= {0, 1, 2, 3}


def test_drafts_are_wrong_in_every_way() -> None:
    made = generate(0)
    plans = [plan for scenario in made for request in scenario.requests for plan in request.rounds]
    wrong = Counter(plan.wrong for plan in plans if 0 <= plan.num_correct < plan.num_drafts)
    assert set(wrong) == set(WRONG)
    assert min(wrong.values()) > 0.1 * wrong.total()


@each(*FEATURES)
def test_of_every_feature_there_are_scenarios_and_others(feature: Feature) -> None:
    having = sum(map(feature.has, generate(0)))
    assert 4 <= having <= CHECK_EXAMPLES - 20


@each(*FEATURES)
def test_without_a_feature_a_scenario_is_valid_and_has_nothing_new(feature: Feature) -> None:
    for scenario in filter(feature.has, generate(0)):
        made = feature.without(scenario)
        assert not feature.has(made)
        assert validate(made) == made
        assert feature.without(made) == made
        before, after = set(features_of(scenario)), set(features_of(made))
        assert after < before
        lost = before - after - {feature.name} - needing(feature)
        # A target whose layers slide where it has no others loses its windows with them.
        assert lost <= ({"windows"} if feature.name == "hybrid" else set())


@each(*FEATURES)
def test_without_it_other_scenarios_stay_as_they_are(feature: Feature) -> None:
    """But for what is compared with trees, and for positions without images."""
    for scenario in generate(0):
        if feature.has(scenario) or scenario.variant == "chain_as_tree":
            continue
        if not getattr(scenario.model, "mrope", False):
            assert feature.without(scenario) == scenario


BROUGHT = {"prefix-cache": {"penalties"}}
"""Features that another brings along: what is emitted is to be known, so that a later prompt can go on from it."""


def row(feature: Feature, draft: str, number: int) -> ArrayRow:
    """Return a row that asks for one feature, and for what it needs."""
    linear = feature.name == "hybrid" or not number % 3
    return ArrayRow(
        draft=draft,  # type: ignore[arg-type]
        shape=SHAPES[number % len(SHAPES)].name,
        layers="replay" if linear else "dense",
        entries=8 if feature.name == "kv-quantization" else 64,
        features=frozenset({feature.name, *feature.needs} & set(CHOSEN)),
    )


@each(*FEATURES)
def test_what_is_drawn_for_a_feature_has_it_and_no_other(feature: Feature) -> None:
    """Not every prompt has room for an image, nor has every draft a window of its own."""
    having = count = 0
    for kind in filter(feature.drafts, DRAFT_KINDS):
        for number in range(6):
            made, _ = strategies.scenario_of(SeededChoose(f"{kind.name} {number}"), row(feature, kind.name, number))
            count += 1
            having += feature.has(made)
            more = set(features_of(made)) - {feature.name, *feature.needs, "hybrid"}
            assert more <= BROUGHT.get(feature.name, set())
    assert having >= 0.9 * count


def test_two_of_several_requests_go_on_whatever_ends_the_others() -> None:
    """Each of these features ends requests, and all of them are still there."""
    ending = frozenset({"aborts", "eos", "grammars", "stop-sequences", "min-tokens"})
    several = 0
    for number in range(24):
        shape = SHAPES[number % len(SHAPES)].name
        made, _ = strategies.scenario_of(SeededChoose(str(number)), ArrayRow(shape=shape, features=ending))
        if len(made.requests) == 1:
            continue
        several += 1
        lasting = [one for one in made.requests if one.budget >= 3 * made.width and one.ignore_eos]
        lasting = [one for one in lasting if one.abort_at is None and not (one.grammar or one.min_tokens)]
        assert sum(not one.stop_sequences_at for one in lasting) >= 2
        assert ending <= set(features_of(made))
    assert several > 12


def test_a_lookup_under_a_controller_finds_nothing_beside_one_that_has_drafts() -> None:
    """Its prompt is one token that hardly comes again, and it comes when the first request decodes."""
    finish = FEATURES_BY_NAME["adaptive-steps"].finish
    assert finish is not None
    before = named("ngram_adaptive")
    made = finish(SeededChoose("0"), before)
    first, second, *_ = validate(made).requests
    assert len(second.prompt) == 1
    assert {plan.num_correct for plan in second.rounds} == {-1}
    assert second.arrival == first.arrival + -(-len(first.prompt) // made.schedule.chunk)
    others = named("eagle_padded")
    assert finish(SeededChoose("0"), others) is others


@each(*(one for one in FEATURES if one.draw))
def test_a_draw_is_a_function_of_its_choices(feature: Feature) -> None:
    assert feature.draw is not None
    kind = next(filter(feature.drafts, DRAFT_KINDS))
    plain, _ = strategies.scenario_of(
        SeededChoose("plain"), ArrayRow(draft=kind.name, shape="reuse", features=frozenset(feature.needs))
    )
    first, again = (feature.draw(SeededChoose("0"), plain) for _ in range(2))
    assert first == again != plain


def test_what_is_refused_together_is_never_generated_and_all_else_is() -> None:
    met = {pair for scenario in generate(0) for pair in combinations(features_of(scenario), 2)}
    refused = {pair for pair in combinations(FEATURES_BY_NAME, 2) if refusal(*pair)}
    assert not met & refused
    # The list is long enough for all others but a few.
    others = set(combinations(FEATURES_BY_NAME, 2)) - refused - met
    assert len(others) <= 4, others


@FAST
@given(scenarios())
def test_what_hypothesis_draws_is_valid_and_survives_json(scenario: Scenario) -> None:
    assert validate(scenario) == scenario
    assert decode(encode(scenario), Scenario) == scenario


@pytest.fixture(scope="module")
def features_drawn() -> Counter[str]:
    """How many of some hundred scenarios that Hypothesis draws have each feature."""
    met: Counter[str] = Counter()

    @settings(FAST, max_examples=300)
    @given(scenarios(sizes=SIZES[:1]))
    def collect(scenario: Scenario) -> None:
        met.update(features_of(scenario))

    collect()
    return met


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("name", FEATURES_BY_NAME)
def test_hypothesis_finds_a_scenario_of_every_feature(name: str, features_drawn: Counter[str]) -> None:
    """Those that are among some hundred are found; others are looked for."""
    if not features_drawn[name]:
        assert find(scenarios(sizes=SIZES[:1]), FEATURES_BY_NAME[name].has, settings=SEARCH, random=Random(0))


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
def test_hypothesis_finds_a_transfer_of_any_size() -> None:
    assert find(
        scenarios(), lambda one: one.schedule.disaggregation, settings=SEARCH, random=Random(0)
    ).schedule.disaggregation


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_named_draft_is_drawn_alone(name: Algorithm) -> None:
    @settings(FAST, max_examples=10)
    @given(scenarios(name, SIZES[:1]))
    def holds(scenario: Scenario) -> None:
        assert algorithm(scenario.draft) == name
        assert scenario == validate(scenario)

    holds()


def test_shrinking_ends_at_one_short_eager_request() -> None:
    smallest = find(scenarios(), lambda _: True, settings=settings(database=None), random=Random(0))
    assert smallest.graphs.sizes == ()
    assert len(smallest.requests) == smallest.model.layers == smallest.steps == 1
    assert smallest.memory.page_size <= 2
    assert len(smallest.requests[0].prompt) <= 2
    assert smallest.variant == "none"
    assert isinstance(smallest.draft, Eagle)
    assert features_of(smallest) == ()
