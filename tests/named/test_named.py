"""Each file is what its name says: its draft, its features and no others, and what a run of it comes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from draftproof.properties.coverage.counts import counts
from draftproof.properties.features import FEATURES, features_of
from draftproof.properties.judge import judge
from draftproof.properties.validate import validate
from draftproof.properties.values.adaptive_steps import Adaptive, AdaptiveByBatch
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm, algorithm
from draftproof.properties.values.scenario import Scenario
from tests.named import FOLDER, OF_DRAFT, named, names
from tests.named.ran import ran_named


class Named(NamedTuple):
    """The draft and all features of a scenario, counts that its run must have, and whatever else is true of it."""

    draft: Algorithm
    features: str = ""
    counts: str = "rounds_with_drafts"
    holds: Callable[[Scenario], object] = lambda _: True


def _commits(how: str) -> Callable[[Scenario], bool]:
    return lambda scenario: scenario.states.commit == how


def _ranks(*of_requests: int) -> Callable[[Scenario], bool]:
    def holds(scenario: Scenario) -> bool:
        uneven = len({one.budget for one in scenario.requests}) > 1
        return uneven and tuple(one.rank for one in scenario.requests) == of_requests

    return holds


NAMED: dict[str, Named] = {
    "aborted": Named("eagle", "aborts", "aborted_in_decode"),
    "adaptive_hybrid": Named(
        "eagle",
        "hybrid adaptive-steps",
        "step_switches_up step_switches_down accept_partial snapshot_rounds",
        lambda one: isinstance(one.adaptive_steps, Adaptive),
    ),
    "adaptive_quarter": Named(
        "eagle",
        "hybrid adaptive-steps",
        "step_switches_up step_switches_down accept_partial snapshot_rounds",
        lambda one: isinstance(one.adaptive_steps, Adaptive) and one.adaptive_steps.alpha == 1 / 4,
    ),
    "adaptive_rising": Named(
        "standalone", "adaptive-steps", "step_switches_up", lambda one: isinstance(one.adaptive_steps, Adaptive)
    ),
    "alone_preempted": Named("mtp", "preemption", "variant_alone_of_resumed", lambda one: one.variant == "alone"),
    "budgeted": Named("dflash", "token-budget", "drafts_cut_by_token_budget"),
    "by_batch": Named(
        "eagle3",
        "adaptive-steps",
        "step_switches_up step_switches_down batches_without_steps",
        lambda one: isinstance(one.adaptive_steps, AdaptiveByBatch),
    ),
    "codes_both": Named("eagle3", "kv-quantization", "quantized_targets quantized_drafts"),
    "dflash_block": Named("dflash", "", "blocks accept_partial"),
    "draft_batch": Named(
        "eagle",
        "hybrid draft-batch",
        "batches_too_large_for_drafts drafts_after_batch_without",
        lambda one: one.schedule.draft_batch and not one.adaptive_steps,
    ),
    "drawn_drafts": Named("eagle3", "sampling drawn-drafts", "drafts_drawn sampled_residuals"),
    "eagle3_features": Named("eagle3", "", "accept_partial", lambda one: len(one.draft.features) > 1),  # type: ignore[union-attr]
    "eagle_padded": Named("eagle", "", "padded_replays accept_partial own_rejected"),
    "ends": Named("eagle", "stop-sequences min-tokens eos", "ends_by_sequence minimum_changed_choice ends_by_eos"),
    "every_choice": Named(
        "eagle",
        "sampling penalties grammars logprobs",
        "penalty_changed_choice grammar_changed_choice sampled_accepted sampled_residuals logprobs_of_sampled",
    ),
    "grammar": Named("dflash", "grammars", "grammar_changed_choice"),
    "grammar_sampled": Named("dflash", "sampling grammars", "grammar_changed_choice grammar_sampled_rounds"),
    "disaggregated": Named("dflash", "disaggregation", "disaggregated_requests"),
    "hybrid_replay": Named("eagle", "hybrid", "replays_folded hybrid_padded_replays", _commits("replay")),
    "hybrid_snapshot": Named(
        "eagle",
        "hybrid",
        "states_committed_partial hybrid_padded_replays checkpoints_kept",
        _commits("snapshot"),
    ),
    "images": Named("ngram", "mrope", "mrope_prompts"),
    "logprobs": Named("eagle", "logprobs", "logprobs_behind_rejection"),
    "mixed_eagle": Named("eagle", "mixed", "mixed_launches accept_partial"),
    "mtp_chain_partial": Named("mtp", "", "accept_partial layers_chained", lambda one: one.draft.chain),  # type: ignore[union-attr]
    "mtp_one_step": Named("mtp", "hybrid", "chunked_prefills chains_of_one", lambda one: one.steps == 1),
    "mtp_unchained": Named("mtp", "", "layers_unchained", lambda one: not one.draft.chain),  # type: ignore[union-attr]
    "ngram_adaptive": Named("ngram", "adaptive-steps", "step_switches_up step_switches_down matches no_matches"),
    "ngram_matches": Named("ngram", "", "matches no_matches", lambda one: one.model.logit_bits == 1),
    "overlapped_hybrid": Named("eagle", "hybrid overlap", "overlap_late_steps states_committed_partial"),
    "overlapped_stop": Named("eagle3", "overlap", "overlap_late_steps overlap_rounds_after_end"),
    "penalized": Named("ngram", "penalties", "penalty_changed_choice penalty_by_draft_in_window"),
    "preempted": Named("standalone", "preemption", "preemptions"),
    "preempted_hybrid": Named("ngram", "hybrid preemption", "preemptions_of_hybrids"),
    "prefix_cached": Named("eagle3", "prefix-cache", "prefix_hits accept_partial"),
    "prefix_cached_hybrid": Named("eagle", "hybrid prefix-cache", "prefix_hits_of_hybrids checkpoints_evicted"),
    "prompt_logprobs": Named("eagle3", "prompt-logprobs", "prompt_logprobs_told prompt_logprobs_in_chunks"),
    "refused": Named("eagle", "refusals", "refused_for_length refused_for_token refused_beside_others"),
    "ranks_data": Named("eagle3", "hybrid data-parallel", "idle_launches idle_steps accept_partial", _ranks(0, 0, 1)),
    "ranks_one_idle": Named("eagle", "hybrid data-parallel", "idle_launches idle_steps", _ranks(0, 0, 0)),
    "ranks_tensor": Named("eagle", "tensor-parallel", "tensor_drafts_cut accept_partial", lambda one: one.graphs.sizes),
    "ranks_tensor_hybrid": Named(
        "eagle", "hybrid tensor-parallel", "tensor_drafts_cut tensor_hybrids", lambda one: one.graphs.sizes
    ),
    "ranks_tensor_whole": Named("eagle", "tensor-parallel", "tensor_drafts_whole"),
    "ranks_windowed": Named("eagle", "hybrid data-parallel windows", "windows_of_ranks window_pages_freed"),
    "sampled_eagle": Named("eagle", "sampling", "sampled_accepted sampled_residuals"),
    "sampled_hybrid_replay": Named(
        "eagle", "hybrid sampling", "sampled_accepted sampled_residuals replays_folded", _commits("replay")
    ),
    "sampled_hybrid_snapshot": Named(
        "eagle", "hybrid sampling", "sampled_accepted sampled_residuals snapshot_rounds", _commits("snapshot")
    ),
    "five_in_graphs": Named("eagle", "", "accept_partial stops_in_accepted_run", lambda one: 6 in one.graphs.sizes),
    "standalone": Named("standalone", "", "accept_partial"),
    "tree_coded_ngram": Named(
        "ngram", "hybrid trees kv-quantization sampling", "quantized_targets matches_branched sampled_tree_residuals"
    ),
    "tree_eagle": Named("eagle", "trees", "trees_off_first_branch beams"),
    "tree_hybrid_replay": Named(
        "eagle", "hybrid trees", "tree_states_replay tree_states_off_first_branch", _commits("replay")
    ),
    "tree_hybrid_snapshot": Named(
        "eagle", "hybrid trees", "tree_states_snapshot tree_states_off_first_branch", _commits("snapshot")
    ),
    "tree_ngram": Named("ngram", "trees", "matches_branched trees_off_first_branch"),
    "tree_sampled": Named("eagle", "trees sampling", "sampled_siblings_after_elder sampled_tree_residuals"),
    "windowed": Named("eagle3", "windows", "window_pages_freed"),
}
"""What each name promises: whoever reads a test need not open the file."""
SMALL = 5_000
"""Characters of a file."""


def test_the_table_has_every_file():
    assert {*NAMED} == {*names()} == {path.stem for path in FOLDER.iterdir() if path.suffix not in (".py", "")}


@pytest.mark.parametrize("name", NAMED)
def test_a_scenario_has_what_its_name_says_and_passes(name: str):
    expected, scenario = NAMED[name], named(name)
    assert validate(scenario) == scenario
    assert algorithm(scenario.draft) == expected.draft
    assert sorted(features_of(scenario)) == sorted(expected.features.split())
    assert expected.holds(scenario)
    assert scenario.taps
    assert len((FOLDER / f"{name}.json").read_text(encoding="utf-8")) < SMALL
    judged = judge(ran_named(name))
    assert judged.passed, judged.first
    found = counts(ran_named(name))
    assert [one for one in expected.counts.split() if not found[one]] == []


def test_every_feature_is_among_them():
    assert {one for each in NAMED.values() for one in each.features.split()} == {one.name for one in FEATURES}


def test_a_draft_has_a_scenario_of_nothing_else():
    assert OF_DRAFT.keys() == set(ALGORITHMS)
    for draft, name in OF_DRAFT.items():
        scenario = named(name)
        assert (algorithm(scenario.draft), features_of(scenario)) == (draft, ())
        assert not scenario.dynamic
        assert (scenario.variant, scenario.graphs.capture) == ("none", True)
        assert scenario.graphs.sizes


def test_a_name_that_no_file_has_is_refused_with_those_that_are_there():
    with pytest.raises(ValueError, match=r"invalid name 'eagle_paded': expected one of aborted, .*windowed"):
        named("eagle_paded")
