"""What real bugs needed to show: in how many scenarios each of these triggers came up.

A trigger is named by the counts that tell that it was there, any of them. This is the one place that says so: `check
--verbose` and its JSON print their shares, and a test holds the strategies to LEAST.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

LEAST = 2
"""Of a hundred scenarios of all drafts, in so many each trigger comes up at least."""


class Trigger(NamedTuple):
    """`group`: the row of shared kinds of triggers that it belongs to; it came up if one of `counts` is not zero."""

    group: str
    name: str
    counts: tuple[str, ...]


def _of(group: str, **named: str) -> tuple[Trigger, ...]:
    return tuple(Trigger(group, name.replace("_", " "), tuple(counts.split())) for name, counts in named.items())


TRIGGERS: tuple[Trigger, ...] = (
    *_of("hybrid model", hybrid="hybrid_scenarios", other_commit="variant_other_commit"),
    *_of(
        "padding",
        smaller_than_captured="padded_replays",
        of_a_hybrid="hybrid_padded_replays",
        after_a_larger_batch="shrink_below_captured_size",
    ),
    *_of("accepted", none="accept_none", part="accept_partial", all="accept_all", alternating="accept_alternating"),
    *_of("page boundary", crossed_by_drafts="page_crossings", at_the_context="contexts_at_page_boundary"),
    *_of(
        "temperature",
        above_0="sampled_accepted sampled_residuals sampled_after_all",
        beside_0="half_sampled_batches",
        drafts_drawn="drafts_drawn",
        top_k_1="sampled_top_k_1",
    ),
    *_of(
        "choices", penalties="penalty_changed_choice", grammar="grammar_changed_choice", logprobs="logprobs_of_several"
    ),
    *_of("graphs", captured="captures", replayed="graph_replays", eager_beside_them="oversized_batches"),
    *_of("drafts of a round", two_and_more="rounds_of_several_drafts", six_and_more="rounds_of_many_drafts"),
    *_of("last step", at_the_budget="drafts_cut_by_budget", at_max_len="drafts_cut_by_max_len", ended="limits_hit"),
    *_of("lengths", uneven="uneven_batches", beyond_64="long_requests"),
    *_of(
        "batch changes",
        finished="batch_shrinks",
        joined="batch_grows",
        slot_reused="slot_reuses",
        by_a_shorter_one="slot_reuses_by_shorter",
        state_slot_reused="state_slot_reuses",
    ),
    *_of("first step after prefill", with_drafts="first_rounds_with_drafts"),
    *_of(
        "mixed batch",
        rows_without_drafts="no_drafts_among_drafts",
        draft_counts_that_differ="mixed_draft_counts",
        prefill_beside="prefill_beside_decode",
        chunks="chunked_prefills",
    ),
    *_of("tree", topk_above_1="tree_rounds", off_the_first_branch="trees_off_first_branch"),
    *_of(
        "adaptive",
        steps_up="step_switches_up",
        steps_down="step_switches_down",
        zero_steps="batches_without_steps batches_too_large_for_drafts",
        and_back="steps_after_none drafts_after_batch_without",
    ),
    *_of(
        "stop",
        in_the_accepted_run="stops_in_accepted_run",
        before_the_budget_in_a_run="stops_before_budget_in_run",
        id_of_the_model="ends_by_eos",
        id_ignored="eos_ignored",
        sequence="ends_by_sequence",
        sequence_across_rounds="sequences_across_rounds",
        sequence_in_the_accepted_run="sequences_in_accepted_run",
        sequence_before_the_minimum="sequences_before_minimum",
        sequence_from_the_prompt="sequences_from_prompt",
    ),
    *_of(
        "step budget",
        cut_drafts="drafts_cut_by_step_tokens",
        cut_a_chunk="chunks_cut_by_step_tokens",
        let_somebody_wait="waits_for_step_tokens",
    ),
    *_of(
        "mixed launch",
        chunks_beside_rounds="mixed_launches",
        beside_no_drafts="mixed_beside_no_drafts",
        as_large_as_decode="mixed_as_large_as_decode prefill_as_large_as_decode",
        bucket_padded="buckets_padded",
        bucket_filled="buckets_filled",
        beyond_buckets="buckets_exceeded",
        after_a_larger_one="buckets_after_larger",
    ),
    *_of(
        "overlap",
        as_late_as_possible="overlap_late_steps",
        a_step_waited_for="overlap_waits",
        a_round_after_the_end="overlap_rounds_after_end",
        behind_a_cut_end="overlap_cut_ends",
        a_page_boundary_ahead="overlap_pages_ahead",
        a_page_in_need="overlap_pages_in_need",
        widths_in_flight="overlap_widths_changed",
        a_late_decision="overlap_late_decisions",
        pages_after_a_discarded_round="overlap_admitted_behind",
    ),
    *_of(
        "hand-over",
        of_a_prompt="handovers",
        in_chunks="handovers_of_chunks",
        after_a_wait="handovers_waiting",
        of_a_part_of_a_page="handovers_of_partial_pages",
        of_several_pages="handovers_of_several_pages",
        with_states="handovers_of_states",
        with_hidden_states="handovers_of_hidden_states",
    ),
    *_of(
        "minimum",
        moved_a_choice="minimum_changed_choice",
        by_row="minimum_of_first_row",
        in_the_window="minimum_in_window",
        in_the_accepted_run="minimum_in_accepted_run",
        met_by_a_stop="ends_as_minimum_is_reached",
    ),
    *_of(
        "preempted",
        at_all="preemptions",
        again="preempted_again",
        in_its_first_round="resumed_in_first_round",
        resumed_in_chunks="resumed_in_chunks",
        of_a_hybrid="preemptions_of_hybrids",
    ),
    *_of(
        "ranks",
        idle="idle_launches",
        uneven="agreed_rows",
        larger_graph="agreed_sizes",
        more_steps="agreed_steps",
        windows="windows_of_ranks",
    ),
    *_of(
        "tensor ranks",
        draft_cut="tensor_drafts_cut",
        draft_whole="tensor_drafts_whole",
        padding="tensor_padded_launches",
        of_a_hybrid="tensor_hybrids",
        drawn="tensor_draws",
        windows="tensor_windows",
    ),
    *_of(
        "prefix cache",
        hit="prefix_hits",
        in_part="prefix_hits_in_part",
        of_the_whole="prefix_hits_of_whole",
        of_emitted_tokens="prefix_hits_of_emitted",
        after_preemption="prefix_hits_after_preemption",
        miss="prefix_misses",
        shared="prefix_shared",
        duplicates="prefix_copies",
        evicted="prefix_evictions",
        beside_trees="prefix_hits_of_trees",
        under_a_controller="prefix_hits_under_controllers",
        by_batch_size="prefix_hits_by_batch_size",
    ),
    *_of(
        "aborted",
        waiting="aborted_waiting",
        before_others="aborted_before_others",
        in_its_prefill="aborted_in_prefill",
        between_rounds="aborted_in_decode",
        preempted="aborted_preempted",
        on_served_pages="aborted_on_served_pages",
    ),
    *_of(
        "windows",
        of_the_target="window_rounds",
        of_the_draft="window_drafts",
        of_two_lengths="windows_unequal",
        left_within_a_round="windows_left",
        prompt_beyond="window_prompts",
        pages_freed="window_pages_freed",
    ),
    *_of(
        "quantised entries",
        of_the_target="coded_targets",
        of_the_draft="coded_drafts",
        of_two_formats="formats_differ",
    ),
    *_of(
        "three positions",
        image="image_prompts",
        behind_an_image="image_rounds",
        image_in_two_chunks="images_cut",
        rows_of_two_deltas="deltas_beside_each_other",
    ),
)


def came_up(counted: Iterable[Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return in how many scenarios, of each of which these are the counts, each trigger came up, by its group."""
    shares: dict[str, dict[str, int]] = {}
    each = list(counted)
    for group, name, counts in TRIGGERS:
        shares.setdefault(group, {})[name] = sum(any(map(one.get, counts)) for one in each)
    return shares
