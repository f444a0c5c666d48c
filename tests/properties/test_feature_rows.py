"""What every row of a feature does: its scenarios have it and it acts, without it they are valid and have nothing new.

What a feature does is in a test of its own, test_overlap.py for example; what pages say of rows is in test_beside.py.
"""

from collections import Counter
from itertools import combinations

import pytest
from msgspec.structs import replace

from draftproof.properties.coverage.counts import FACT_NAMES, counts
from draftproof.properties.coverage.covered import not_covered, unreachable_by_draft
from draftproof.properties.coverage.effects import EFFECTS, acts
from draftproof.properties.features import FEATURES, FEATURES_BY_NAME, features_of, refusal
from draftproof.properties.features.feature import Feature
from draftproof.properties.fit import fit
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.lib.paths import put
from draftproof.properties.validate import is_valid, validate
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.drafts import DRAFT_KINDS, Algorithm, CheckpointDraft
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.scenario import VARIANTS, Checkpoint, Scenario, Variant
from draftproof.properties.variants import needed_by_variant, refused_by_variant
from tests.named import OF_DRAFT, Nth, named, names
from tests.named.ran import ran
from tests.properties.facts import each, needing, taking

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
    "disaggregation": "disaggregated",
    "aborts": "aborted",
    "windows": "windowed",
    "data-parallel": "ranks_data",
    "tensor-parallel": "ranks_tensor",
    "overlap": "overlapped_stop",
    "mixed": "mixed_eagle",
    "refusals": "refused",
}
"""Feature -> the name of a scenario that has it."""
REFUSED = [pair for pair in combinations(FEATURES_BY_NAME, 2) if refusal(*pair)]
NOT_COMPARED = [
    (variant, name)
    for variant in VARIANTS
    for name in FEATURES_BY_NAME
    if refused_by_variant(variant, name)
    # Otherwise there is nothing that could be compared.
    if not (needed_by_variant(variant) and refusal(needed_by_variant(variant), name))
]


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


def test_who_says_how_another_is_drawn_comes_before_it_and_alone() -> None:
    order, said = list(FEATURES_BY_NAME), [(feature, name) for feature in FEATURES for name in feature.beside]
    for feature, name in said:
        assert order.index(feature.name) < order.index(name)
        assert FEATURES_BY_NAME[name].draw
        assert not refusal(feature.name, name)
    names = [name for _, name in said]
    assert names
    assert len(set(names)) == len(names)


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


def as_checkpoint(scenario: Scenario) -> Scenario:
    draft = CheckpointDraft(algorithm="standalone", path="none")
    return replace(scenario, model=Checkpoint(path="none", vocab=scenario.model.vocab), draft=draft)


def both(one: str, other: str) -> list[Scenario]:
    """Return scenarios of one feature, to which the other was added as its row draws it."""
    made = [TOGETHER[one, other]] if (one, other) in TOGETHER else []
    for first, second in ((one, other), (other, one)):
        draw = FEATURES_BY_NAME[second].draw
        having = filter(FEATURES_BY_NAME[first].has, map(named, names()))
        made += [draw(Nth(0), scenario) for scenario in having if draw]
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
        real = as_checkpoint(scenario)
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


ELSEWHERE = {
    "hybrid": "hybrid_oversized_batches variant_other_commit",
    "trees": "topk_1 topk_2 variant_chain_as_tree",
    "sampling": "sampled_dynamic_rounds",
    "drawn-drafts": "drawn_after_all drawn_accepted",
    "prefix-cache": "prefix_hits_by_batch_size prefix_hits_of_trees prefix_hits_after_preemption "
    "prefix_hits_on_running aborted_on_served_pages checkpoints_evicted_with_pages variant_alone_of_served "
    "prefix_hits_cut_by_logprobs prefix_hits_of_emitted prefix_hits_without_checkpoint prefix_hits_with_adaptive_steps "
    "prompt_logprobs_behind_prefix prefix_hits_of_images served_for_one_token",
    "min-tokens": "minimum_of_first_row minimum_in_accepted_run ends_as_minimum_is_reached",
    "stop-sequences": "sequences_across_resume sequences_from_prompt",
    "kv-quantization": "kv_formats_differ",
    "mrope": "mrope_rounds mrope_prompts_of_several_images mrope_images_cut mrope_deltas_beside_each_other",
    "disaggregation": "disaggregated_partial_pages disaggregated_hidden_states disaggregated_states",
    "aborts": "aborted_in_prefill aborted_before_others aborted_waiting aborted_preempted",
    "windows": "windows_left",
    "tensor-parallel": "tensor_windows tensor_draws",
    "overlap": "overlap_admitted_behind overlap_widths_changed overlap_late_decisions variant_unoverlapped",
    "mixed": "buckets_filled buckets_padded buckets_after_larger mixed_beside_no_drafts mixed_as_large_as_decode "
    "variant_unmixed",
}
"""Facts of features that no scenario of tests/named reaches: tests of the feature, or of lists, do."""


@each(*(one for one in FEATURES if one.facts))
def test_every_fact_of_it_is_reached_and_none_without_it(feature: Feature) -> None:
    found = Counter[str]()
    for scenario in filter(feature.has, map(named, names())):
        found.update(counts(ran(scenario)))
    unreached = {fact.name for fact in feature.facts if not found[fact.name]}
    assert unreached == set(ELSEWHERE.get(feature.name, "").split())
    plain = counts(ran(feature.without(named(HAVING[feature.name]))))
    assert not any(plain[fact.name] for fact in feature.facts)


# A hybrid is one by its files; trees and codes ask for a draft and a dtype that go with them.
@each(*(one for one in FEATURES if not one.of_probes and one.name not in ("hybrid", "trees", "kv-quantization")))
def test_what_a_checkpoint_may_have_is_a_scenario_of_one(feature: Feature) -> None:
    """But of its facts a few scenarios reach only those that are real."""
    made = [as_checkpoint(scenario) for scenario in filter(feature.has, map(named, names()))]
    assert any(feature.has(one) and is_valid(one) for one in made)
    form = ran(named(HAVING[feature.name])).form
    never = {fact.name for fact in feature.facts if not fact.is_real(form.kind)}
    assert never <= unreachable_by_draft(form, real=True)


@each(*FEATURES)
def test_effects_and_what_a_feature_lacks_are_counts_that_there_are(feature: Feature) -> None:
    assert {*EFFECTS[feature.name], *feature.lacks} <= set(FACT_NAMES)
    assert EFFECTS[feature.name]
