"""What every row of a feature does: its scenarios have it, and without it they are valid and have nothing new."""

from __future__ import annotations

from itertools import combinations

import pytest
from msgspec.structs import replace

from draftproof.cli.check import EXAMPLES
from draftproof.properties.choose import SeededChoose
from draftproof.properties.coverage.counts import NAMES
from draftproof.properties.features import BY_NAME, FEATURES, features_of, refusal
from draftproof.properties.features.feature import Feature
from draftproof.properties.strategies.rows import CHOSEN, ArrayRow
from draftproof.properties.strategies.scenarios import scenario_of
from draftproof.properties.strategies.shapes import SHAPES
from draftproof.properties.values.drafts import KINDS
from draftproof.properties.values.invalid import InvalidScenarioError
from draftproof.properties.values.validate import validate
from tests.drawn import generate

LISTED = generate(0, EXAMPLES, [kind.name for kind in KINDS])
BROUGHT = {"prefix-cache": {"penalties"}}
"""Features that another brings along: what is emitted is to be known, so that a later prompt can go on from it."""
each = pytest.mark.parametrize("feature", FEATURES, ids=lambda one: one.name)


@each
def test_of_every_feature_there_are_scenarios_and_others(feature: Feature) -> None:
    having = sum(map(feature.has, LISTED))
    assert 4 <= having <= len(LISTED) - 20


@each
def test_without_a_feature_a_scenario_is_valid_and_has_nothing_new(feature: Feature) -> None:
    for scenario in filter(feature.has, LISTED):
        made = feature.without(scenario)
        assert not feature.has(made)
        assert validate(made) == made
        assert feature.without(made) == made
        before, after = set(features_of(scenario)), set(features_of(made))
        assert after < before
        needing = {one.name for one in FEATURES if feature.name in one.needs}
        lost = before - after - {feature.name} - needing
        # A target whose layers slide where it has no others loses its windows with them.
        assert lost <= ({"windows"} if feature.name == "hybrid" else set())


@each
def test_without_it_other_scenarios_stay_as_they_are(feature: Feature) -> None:
    """But for what is compared with trees, and for positions without images."""
    for scenario in LISTED:
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
        entries=8 if feature.name == "codes" else 64,
        features=frozenset({feature.name, *feature.needs} & set(CHOSEN)),
    )


@each
def test_what_is_drawn_for_a_feature_has_it_and_no_other(feature: Feature) -> None:
    """Not every prompt has room for an image, nor has every draft a window of its own."""
    having = count = 0
    for kind in filter(feature.drafts, KINDS):
        for number in range(6):
            made, _ = scenario_of(SeededChoose(f"{kind.name} {number}"), row(feature, kind.name, number))
            count += 1
            having += feature.has(made)
            more = set(features_of(made)) - {feature.name, *feature.needs, "hybrid"}
            assert more <= BROUGHT.get(feature.name, set())
    assert having >= 0.9 * count


@each
def test_a_draw_is_a_function_of_its_choices(feature: Feature) -> None:
    if feature.draw is None:
        return
    kind = next(filter(feature.drafts, KINDS))
    plain, _ = scenario_of(
        SeededChoose("plain"), ArrayRow(draft=kind.name, shape="reuse", features=frozenset(feature.needs))
    )
    first, again = (feature.draw(SeededChoose("0"), plain) for _ in range(2))
    assert first == again != plain


def test_what_is_refused_together_is_never_generated_and_all_else_is() -> None:
    met = {pair for scenario in LISTED for pair in combinations(features_of(scenario), 2)}
    refused = {pair for pair in combinations(BY_NAME, 2) if refusal(*pair)}
    assert not met & refused
    # The list is long enough for all others but a few.
    others = set(combinations(BY_NAME, 2)) - refused - met
    assert len(others) <= 4, others


def test_what_is_refused_together_is_no_scenario() -> None:
    """Fields of two scenarios, each with one feature, in one."""
    overlapped = next(one for one in LISTED if one.schedule.overlap)
    message = "invalid step-budget beside overlap: expected one of them: S-OVERLAP-3 .*S-SCHED-10"
    with pytest.raises(InvalidScenarioError, match=message):
        validate(replace(overlapped, schedule=replace(overlapped.schedule, step_tokens=9)))


@each
def test_effects_and_what_a_feature_lacks_are_counts_that_there_are(feature: Feature) -> None:
    assert {*feature.effects, *feature.lacks} <= set(NAMES)
    assert feature.effects
