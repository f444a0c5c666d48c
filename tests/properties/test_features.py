"""Every feature: a scenario that has it, what is left without it, what it is not defined beside, what tells its effect.

What a feature does is in a test of its own, test_overlap.py for example.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from msgspec.structs import replace

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.coverage.counts import counts
from draftproof.properties.coverage.covered import not_covered
from draftproof.properties.coverage.effects import EFFECTS, acts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.features import FEATURES, Feature, features_of
from draftproof.properties.fit import fit
from draftproof.properties.judge import judge
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.invalid import InvalidScenarioError
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.paths import put, put_in
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.tree import Tree
from draftproof.properties.values.validate import validate
from tests.named import named
from tests.properties.facts import names_of, taking

HAVING = {
    "hybrid": "hybrid_replay",
    "trees": "tree_eagle",
    "controllers": "adaptive_rising",
    "preemption": "preempted_hybrid",
    "prefix-cache": "prefix_cached",
    "aborts": "aborted",
    "overlap": "overlapped_stop",
    "mixed": "mixed_eagle",
    "step-budget": "budgeted",
    "handover": "handed_over",
    "data-parallel": "ranks_data",
    "tensor-parallel": "ranks_tensor",
    "windows": "windowed",
    "codes": "codes_both",
    "images": "images",
    "sampling": "sampled_eagle",
    "drawn-drafts": "drawn_drafts",
    "penalties": "penalized",
    "grammars": "grammar",
    "logprobs": "logprobs",
    "prompt-logprobs": "prompt_logprobs",
    "stop-sequences": "ends",
    "min-tokens": "ends",
    "ends": "ends",
}
"""Feature -> the name of a scenario that has it."""


COUNTED: dict[str, frozenset[str]] = {
    limit: frozenset(names)
    for limit, names in {
        "trees": taking("trees"),
        "controllers": EFFECTS["controllers"],
        "preemption": names_of("preemption"),
        "caching": names_of("prefix-cache"),
        "aborts": names_of("aborts"),
        "overlap": names_of("overlap"),
        "mixed": names_of("mixed"),
        "step_tokens": names_of("step-budget"),
        "handover": names_of("handover"),
        "ranks": (*names_of("data-parallel"), *names_of("tensor-parallel")),
        "windows": names_of("windows"),
        "codes": names_of("codes"),
        "images": names_of("images"),
        "sampling": taking("sampling"),
        "penalties": names_of("penalties"),
        "grammars": taking("grammars"),
        "logprobs": taking("logprobs"),
        "ends": names_of("eos", "min-tokens", "stop-sequences"),
    }.items()
}
"""Limit -> the counts that nobody reaches who lacks it."""


def limits_without(feature: Feature) -> Limits:
    """Return the limits of a subject that lacks it, and nothing else."""
    return Limits(**{feature.limit: False})


def lost_with(feature: Feature) -> set[str]:
    """Return the names of the features that a subject without this one lacks."""
    return {one.name for one in FEATURES if one.limit == feature.limit}


@cache
def ran(scenario: Scenario) -> Evidence:
    return evidence(EngineSubject(), scenario)


def each(*features: Feature) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("feature", features, ids=[one.name for one in features])


def test_there_is_a_scenario_of_each():
    assert list(HAVING) == [one.name for one in FEATURES]
    assert set(EFFECTS) == set(HAVING)


@each(*FEATURES)
def test_a_scenario_has_it_and_its_effect_is_counted(feature: Feature):
    scenario = named(HAVING[feature.name])
    assert feature.has(scenario)
    assert feature.name in features_of(scenario)
    assert not feature.refuses(scenario)
    of = ran(validate(scenario))
    assert judge(of).passed
    assert acts(feature.name, counts(of))


@each(*(one for one in FEATURES if one.limit))
def test_a_subject_without_it_is_given_none_and_asked_for_none(feature: Feature):
    scenario, limits = named(HAVING[feature.name]), limits_without(feature)
    assert fit(scenario, Limits()) == scenario
    fitted = fit(scenario, limits)
    assert not feature.has(fitted)
    assert set(features_of(fitted)) == set(features_of(scenario)) - lost_with(feature)
    assert fit(fitted, limits) == fitted
    of = ran(fitted)
    assert judge(of).passed
    reached = {name for name, count in counts(of).items() if count}
    lacking = not_covered(limits, frozenset(CHANNELS))
    assert COUNTED[feature.limit] <= lacking
    # Rounds of a fixed plan may have few drafts or none, too.
    assert lacking & reached <= {"batches_without_drafts", "narrow_replays"}
    # Rounds are what logprobs are counted by, and everybody has some.
    assert not reached & ({*EFFECTS[feature.name], *COUNTED[feature.limit]} - {"rounds", "batches_without_drafts"})


BESIDE = {
    **{feature: named(name) for feature, name in HAVING.items()},
    "draft-batch": named("draft_batch"),
    "look-ups": named("ngram_matches"),
    "services": put_in(named("eagle_padded"), "schedule", services=2),
    "alone": replace(named("eagle_padded"), variant="alone"),
    "chain_as_tree": replace(named("eagle_padded"), variant="chain_as_tree"),
}
"""What a feature may be added to: scenarios of every other one, and of what is no feature."""


def _windowed(scenario: Scenario) -> Scenario:
    size, layers = scenario.memory.page_size, scenario.model.layers  # type: ignore[union-attr]
    return put_in(scenario, "model", layer_types=("sliding_attention",) * layers, linear=None, window=size)


def _even(scenario: Scenario) -> Scenario:
    """The same with heads that two ranks can share."""
    made = put_in(scenario, "model", heads=4, kv_heads=2)
    linear = made.model.linear  # type: ignore[union-attr]
    return put(made, "model.linear", replace(linear, key_heads=2, value_heads=2)) if linear else made


ADDED: dict[str, tuple[str, Callable[[Scenario], Scenario], str]] = {
    "trees": (
        "tree",
        lambda one: replace(one, tree=Tree(topk=2, nodes=one.steps)),
        "a draft that proposes no tree, adaptive steps, schedule.draft_batch, schedule.preemption, "
        "schedule.step_tokens",
    ),
    "overlap": (
        "schedule.overlap",
        lambda one: put_in(one, "schedule", overlap=("late",)),
        "a tree, a draft that looks up tokens, schedule.preemption, schedule.prefix_cache, schedule.step_tokens, "
        "schedule.mixed, schedule.handover, ranks, aborts, windows, grammars, penalties, min_tokens, variant alone, "
        "variant chain_as_tree",
    ),
    "mixed": ("schedule.mixed", lambda one: put(one, "schedule.mixed", True), "a tree"),
    "step-budget": (
        "schedule.step_tokens",
        lambda one: put(one, "schedule.step_tokens", 4),
        "a tree, adaptive steps, schedule.draft_batch, schedule.preemption, schedule.prefix_cache, aborts",
    ),
    "handover": (
        "schedule.handover",
        lambda one: put(one, "schedule.handover", True),
        "a tree, adaptive steps, schedule.draft_batch, schedule.preemption, schedule.prefix_cache, "
        "schedule.step_tokens, schedule.mixed, aborts, windows, variant alone, variant chain_as_tree",
    ),
    "data-parallel": (
        "ranks.data",
        lambda one: put(one, "ranks.data", 2),
        "a tree, schedule.preemption, schedule.prefix_cache, schedule.step_tokens, schedule.mixed, schedule.handover, "
        "schedule.services, a variant",
    ),
    "tensor-parallel": (
        "ranks.tensor",
        lambda one: put(_even(one), "ranks.tensor", 2),
        "a tree, schedule.preemption, schedule.prefix_cache, schedule.step_tokens, schedule.mixed, schedule.handover, "
        "schedule.services, a variant, data-parallel ranks",
    ),
    "windows": (".window", _windowed, "a tree"),
}
"""Feature -> the field of it, how it is added to a scenario, and what it is not defined beside."""
WORDS = {
    "a tree": "tree",
    "a draft that proposes no tree": "a draft that proposes one",
    "data-parallel ranks": "ranks.data",
}
"""What validation calls it, where it has other words."""


def test_what_excludes_others_is_added_to_all_of_them():
    assert list(ADDED) == [one.name for one in FEATURES if one.rule]


@each(*(one for one in FEATURES if one.rule))
def test_what_it_is_not_defined_beside_is_refused_by_name(feature: Feature):
    field, added, all_refused = ADDED[feature.name]
    found = set[str]()
    for name, scenario in BESIDE.items():
        if name == feature.name:
            continue
        made = added(scenario)
        refused = feature.refuses(made)
        found |= set(refused)
        if refused:
            with pytest.raises(InvalidScenarioError) as told:
                validate(made)
            assert field in str(told.value)
            # What the other one excludes may be told first.
            either = [beside for one in FEATURES if one.has(made) for beside in one.refuses(made)]
            assert any(WORDS.get(beside, beside) in str(told.value) for beside in either), (name, str(told.value))
    assert sorted(found) == sorted(all_refused.split(", "))
