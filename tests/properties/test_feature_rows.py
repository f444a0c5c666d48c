"""What every row of a feature does: its scenarios have it and it acts, without it they are valid and have nothing new.

What a feature does is in a test of its own, test_overlap.py for example; what pages say of rows is in test_beside.py.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations

import pytest
from msgspec.structs import replace

from draftproof.cli.check import CHECK_EXAMPLES
from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.choose import SeededChoose
from draftproof.properties.coverage.counts import FACT_NAMES, counts
from draftproof.properties.coverage.covered import not_covered
from draftproof.properties.coverage.effects import EFFECTS, acts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.features import FEATURES, FEATURES_BY_NAME, features_of, refusal
from draftproof.properties.features.feature import Feature
from draftproof.properties.fit import fit
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.lib.paths import put
from draftproof.properties.strategies.rows import CHOSEN, ArrayRow
from draftproof.properties.strategies.scenarios import generate, scenario_of
from draftproof.properties.strategies.shapes import SHAPES
from draftproof.properties.validate import validate
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.drafts import ALGORITHMS, DRAFT_KINDS, Algorithm, CheckpointDraft
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.scenario import VARIANTS, Checkpoint, Scenario, Variant
from draftproof.properties.variants import needed_by_variant, refused_by_variant
from tests.named import OF_DRAFT, named, names
from tests.properties.facts import taking

HAVING = {
    "hybrid": "hybrid_replay",
    "adaptive-steps": "adaptive_rising",
    "draft-batch": "draft_batch",
    "trees": "tree_eagle",
    "preemption": "preempted_hybrid",
    "token-budget": "budgeted",
    "sampling": "sampled_eagle",
    "drawn-drafts": "drawn_drafts",
    "penalties": "penalized",
    "grammars": "grammar",
    "prefix-cache": "prefix_cached",
    "logprobs": "logprobs",
    "prompt-logprobs": "prompt_logprobs",
    "eos": "ends",
    "min-tokens": "ends",
    "stop-sequences": "ends",
    "kv-quantization": "codes_both",
    "mrope": "images",
    "disaggregation": "handed_over",
    "aborts": "aborted",
    "windows": "windowed",
    "data-parallel": "ranks_data",
    "tensor-parallel": "ranks_tensor",
    "overlap": "overlapped_stop",
    "mixed": "mixed_eagle",
}
"""Feature -> the name of a scenario that has it."""
BROUGHT = {"prefix-cache": {"penalties"}}
"""Features that another brings along: what is emitted is to be known, so that a later prompt can go on from it."""
REFUSED = [pair for pair in combinations(FEATURES_BY_NAME, 2) if refusal(*pair)]
NOT_COMPARED = [
    (variant, name)
    for variant in VARIANTS
    for name in FEATURES_BY_NAME
    if refused_by_variant(variant, name)
    # Otherwise there is nothing that could be compared.
    if not (needed_by_variant(variant) and refusal(needed_by_variant(variant), name))
]


def each(*features: Feature) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("feature", features, ids=[one.name for one in features])


@cache
def listed() -> list[Scenario]:
    return generate(0, CHECK_EXAMPLES, ALGORITHMS)


@cache
def ran(scenario: Scenario) -> Evidence:
    return evidence(EngineSubject(), scenario)


def needing(feature: Feature) -> set[str]:
    """Return the features that there are only beside this one."""
    return {one.name for one in FEATURES if feature.name in one.needs}


def test_there_is_a_scenario_of_each() -> None:
    assert list(HAVING) == list(EFFECTS) == list(FEATURES_BY_NAME)


@each(*FEATURES)
def test_a_scenario_has_it_and_its_effect_is_counted(feature: Feature) -> None:
    scenario = named(HAVING[feature.name])
    assert feature.has(scenario)
    assert feature.name in features_of(scenario)
    of = ran(validate(scenario))
    assert judge(of).passed
    assert acts(feature.name, counts(of))


@each(*(one for one in FEATURES if not one.of_model))
def test_a_subject_without_it_is_given_none_and_asked_for_none(feature: Feature) -> None:
    scenario = named(HAVING[feature.name])
    limits = Limits(features=tuple(name for name in FEATURES_BY_NAME if name != feature.name))
    assert fit(scenario, NO_LIMITS) == scenario
    fitted = fit(scenario, limits)
    assert not feature.has(fitted)
    assert set(features_of(fitted)) == set(features_of(scenario)) - {feature.name} - needing(feature)
    assert fit(fitted, limits) == fitted
    of = ran(fitted)
    assert judge(of).passed
    reached = {name for name, count in counts(of).items() if count}
    lacking = not_covered(limits, frozenset(CHANNELS))
    assert {*EFFECTS[feature.name], *taking(feature.name)} <= lacking
    # Rounds of a fixed plan may have few drafts, too.
    assert lacking & reached <= {"narrow_replays"}


@each(*FEATURES)
def test_of_every_feature_there_are_scenarios_and_others(feature: Feature) -> None:
    having = sum(map(feature.has, listed()))
    assert 4 <= having <= len(listed()) - 20


@each(*FEATURES)
def test_without_a_feature_a_scenario_is_valid_and_has_nothing_new(feature: Feature) -> None:
    for scenario in filter(feature.has, listed()):
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
    for scenario in listed():
        if feature.has(scenario) or scenario.variant == "chain_as_tree":
            continue
        if not getattr(scenario.model, "mrope", False):
            assert feature.without(scenario) == scenario


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
            made, _ = scenario_of(SeededChoose(f"{kind.name} {number}"), row(feature, kind.name, number))
            count += 1
            having += feature.has(made)
            more = set(features_of(made)) - {feature.name, *feature.needs, "hybrid"}
            assert more <= BROUGHT.get(feature.name, set())
    assert having >= 0.9 * count


@each(*(one for one in FEATURES if one.draw))
def test_a_draw_is_a_function_of_its_choices(feature: Feature) -> None:
    assert feature.draw is not None
    kind = next(filter(feature.drafts, DRAFT_KINDS))
    plain, _ = scenario_of(
        SeededChoose("plain"), ArrayRow(draft=kind.name, shape="reuse", features=frozenset(feature.needs))
    )
    first, again = (feature.draw(SeededChoose("0"), plain) for _ in range(2))
    assert first == again != plain


def test_who_says_how_another_is_drawn_comes_before_it_and_alone() -> None:
    order, said = list(FEATURES_BY_NAME), [(feature, name) for feature in FEATURES for name in feature.beside]
    for feature, name in said:
        assert order.index(feature.name) < order.index(name)
        assert FEATURES_BY_NAME[name].draw
        assert not refusal(feature.name, name)
    names = [name for _, name in said]
    assert names
    assert len(set(names)) == len(names)


def test_what_is_refused_together_is_never_generated_and_all_else_is() -> None:
    met = {pair for scenario in listed() for pair in combinations(features_of(scenario), 2)}
    assert not met & set(REFUSED)
    # The list is long enough for all others but a few.
    others = set(combinations(FEATURES_BY_NAME, 2)) - set(REFUSED) - met
    assert len(others) <= 4, others


def with_drawn_drafts(scenario: Scenario) -> Scenario:
    requests = (
        replace(one, sampling=one.sampling and replace(one.sampling, draft="sampled")) for one in scenario.requests
    )
    return replace(scenario, requests=tuple(requests))


TOGETHER = {
    ("trees", "drawn-drafts"): with_drawn_drafts(named("tree_sampled")),
    ("data-parallel", "tensor-parallel"): put(named("ranks_tensor"), "ranks.data", 2),
}
"""Scenarios of two features of which the one is drawn without the other, or in its place."""


def both(one: str, other: str) -> list[Scenario]:
    """Return scenarios of one feature, to which the other was added as its row draws it."""
    made = [TOGETHER[one, other]] if (one, other) in TOGETHER else []
    for first, second in ((one, other), (other, one)):
        draw = FEATURES_BY_NAME[second].draw
        having = filter(FEATURES_BY_NAME[first].has, map(named, names()))
        made += [draw(SeededChoose("0"), scenario) for scenario in having if draw]
    return [each for each in made if {one, other} <= set(features_of(each))]


@pytest.mark.parametrize(("one", "other"), REFUSED)
def test_what_is_refused_together_is_no_scenario(one: str, other: str) -> None:
    told = []
    for scenario in both(one, other):
        with pytest.raises(InvalidScenarioError) as refused:
            validate(scenario)
        told.append(str(refused.value))
    assert f"invalid {one} beside {other}: expected one of them: {refusal(one, other)}" in told


# A window is one of a probe's layers: a checkpoint cannot have it.
@each(*(one for one in FEATURES if one.of_probes and one.name != "windows"))
def test_what_is_defined_for_probes_is_no_scenario_of_a_checkpoint(feature: Feature) -> None:
    for scenario in filter(feature.has, map(named, names())):
        draft = CheckpointDraft(algorithm="standalone", path="none")
        real = replace(scenario, model=Checkpoint(path="none", vocab=scenario.model.vocab), draft=draft)
        first, *others = (name for name in features_of(real) if FEATURES_BY_NAME[name].of_probes)
        assert feature.name in (first, *others)
        with pytest.raises(
            InvalidScenarioError, match=f"^invalid {first} of a checkpoint: expected none: it is defined"
        ):
            validate(real)


@pytest.mark.parametrize(
    ("name", "draft"), [(one.name, kind.name) for one in FEATURES for kind in DRAFT_KINDS if not one.drafts(kind)]
)
def test_a_draft_that_cannot_have_it_is_told(name: str, draft: Algorithm) -> None:
    feature, other = FEATURES_BY_NAME[name], named(OF_DRAFT[draft]).draft
    takers = ", ".join(one.name for one in DRAFT_KINDS if feature.drafts(one))
    told = []
    for scenario in filter(feature.has, map(named, names())):
        with pytest.raises(InvalidScenarioError) as refused:
            validate(replace(scenario, draft=replace(other, head_vocab=0) if hasattr(other, "head_vocab") else other))
        told.append(str(refused.value))
    problem = f"invalid {name} with draft {draft!r}: expected a draft that can have it, {takers}"
    assert f"{problem}: {feature.because}" in told


@pytest.mark.parametrize(("variant", "name"), NOT_COMPARED)
def test_a_variant_that_cannot_be_compared_beside_a_feature_is_no_scenario(variant: Variant, name: str) -> None:
    needed = needed_by_variant(variant)
    told = []
    for scenario in both(needed, name) if needed else filter(FEATURES_BY_NAME[name].has, map(named, names())):
        with pytest.raises(InvalidScenarioError) as refused:
            validate(replace(scenario, variant=variant))
        told.append(str(refused.value))
    because = refused_by_variant(variant, name)
    assert f"invalid variant {variant} beside {name}: expected another one: {because}" in told


@each(*FEATURES)
def test_effects_and_what_a_feature_lacks_are_counts_that_there_are(feature: Feature) -> None:
    assert {*EFFECTS[feature.name], *feature.lacks} <= set(FACT_NAMES)
    assert EFFECTS[feature.name]
