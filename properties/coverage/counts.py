"""Counts: how often something happened in a run, as sums over its samples. A contract's minimum is held to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from draftproof.properties.coverage.points import POINTS
from draftproof.properties.coverage.read_handovers import OF_HANDOVERS
from draftproof.properties.coverage.read_mixed import OF_MIXED
from draftproof.properties.coverage.read_overlap import OF_OVERLAP
from draftproof.properties.coverage.read_rounds import read_samples
from draftproof.properties.coverage.read_step_tokens import OF_STEP_TOKENS
from draftproof.properties.coverage.read_trees import OF_TREES, OF_TRIES, SAMPLED_TREES
from draftproof.properties.coverage.samples import BatchSample, RequestSample, RoundSample, RunSample
from draftproof.properties.evidence.cached_pages import COUNTS, OF_STATES
from draftproof.properties.evidence.ends import OF_ENDS
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.rank_counts import OF_RANKS, OF_TENSOR_RANKS
from draftproof.properties.evidence.schedule import StepLaunch
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.observed import GRAPHED, LaunchKind
from draftproof.properties.values.scenario import VARIANTS, WRONG

T = TypeVar("T")
Table = Mapping[str, Callable[[T], int]]
OF_PENALTIES = (
    "penalty_changed_choice",
    "penalty_by_draft_in_window",
    "bias_changed_choice",
    "repetition_changed_choice",
    "frequency_changed_choice",
    "presence_changed_choice",
)
"""Rounds in which a choice would be another one without penalties, without the drafts of the round in the text that
they go by, or without one of them."""
OF_PREEMPTIONS = (
    "preemptions",
    "preempted_again",
    "resumed_in_first_round",
    "resumed_in_chunks",
    "preemptions_of_hybrids",
    "sequences_across_resume",
)
"""Times that a request gave its pages back; requests that did so again, that ran again in their first round, in
chunks; those of hybrids; and requests that ended by a stop sequence which began before they gave way."""
PREFIXES_BESIDE = ("prefix_hits_of_trees", "prefix_hits_under_controllers", "prefix_hits_by_batch_size")
"""Requests that were served something, whose drafts are trees, whose step count a controller chooses, or that have none
in large batches."""
OF_ALONE = ("variant_alone", "variant_alone_of_served", "variant_alone_of_resumed")
"""Runs that were compared with each request alone; their requests that a prefix cache served, or that were resumed."""
OF_PREFIXES = (*COUNTS, *OF_STATES, *PREFIXES_BESIDE)
"""What a prefix cache did (evidence/cached_pages.py), and beside what."""
OF_WINDOWS = (
    "window_rounds",
    "window_drafts",
    "window_prompts",
    "windows_left",
    "windows_unequal",
    "window_pages_freed",
)
"""Rounds whose rows do not see all of their context, and whose draft does not; prompts longer than a window; rounds of
which only later rows miss the first entry; scenarios with two windows; pages freed while their request runs."""
OF_CODES = ("coded_targets", "coded_drafts", "formats_differ", "codes_moved")
"""Scenarios in which the target keeps its entries as codes, the draft does, and each in a format of its own; rounds of
trees that moved codes."""
OF_IMAGES = ("image_prompts", "image_rounds", "images_cut", "deltas_beside_each_other")
"""Prompts with images; rounds behind one whose positions are not their index; images that chunks cut; batches of rows
with another delta each."""
ABORTED = ("waiting", "in_prefill", "in_decode", "preempted")
OF_ABORTS = (*(f"aborted_{when}" for when in ABORTED), "aborted_before_others", "aborted_on_served_pages")
"""Requests that were aborted while they waited, in their prefill, between rounds, or while they waited again; with
others behind them in the queue; and on pages that a prefix cache had served them."""
OF_MINIMA = (
    "minimum_changed_choice",
    "minimum_of_first_row",
    "minimum_in_window",
    "minimum_in_accepted_run",
)
"""Rounds of requests with a minimum of tokens: in which a choice would be another one without it, or with what is
excluded after row 0 excluded after all rows; with rows before the minimum and behind it; and that emit tokens of both
kinds."""
OF_GRAMMARS = (
    "grammar_changed_choice",
    "grammar_by_draft_in_window",
    "grammar_forces_token",
    "grammar_rejects_draft",
    "grammar_after_partial",
    "grammar_ends",
    "grammar_sampled_rounds",
)
"""Rounds of requests with a grammar: in which a choice would be another one without it, or with the mask of row 0 for
all rows; in which a row that is accepted has one token to choose, a draft would be accepted without the grammar, a
draft that was rejected would have led to another state, or a word ends; and those that are sampled."""
_LONG = POINTS["length"][POINTS["length"].index("to 128") :]
# Generated scenarios have at most five drafts a round, but for a few wide ones.
_WIDTHS = range(1, 7)


def _is_one(**values: str | bool) -> Callable[[object], bool]:
    """Return a predicate: the sample's fields have these values."""
    return lambda sample: all(getattr(sample, field) == value for field, value in values.items())


def _of_prefixes(name: str) -> Callable[[RunSample], int]:
    return lambda run: run.prefixes.get(name, 0)


def _of_step_tokens(name: str) -> Callable[[RunSample], int]:
    return lambda run: run.step_tokens.get(name, 0)


def _of_mixed(name: str) -> Callable[[RunSample], int]:
    return lambda run: run.mixed.get(name, 0)


def _of_overlap(name: str) -> Callable[[RunSample], int]:
    return lambda run: run.overlap.get(name, 0)


def _of_handovers(name: str) -> Callable[[RunSample], int]:
    return lambda run: run.handovers.get(name, 0)


def _is_of_ends(name: str) -> Callable[[RequestSample], bool]:
    return lambda request: name in request.ends


def _hits_where(holds: Callable[[RunSample], bool]) -> Callable[[RunSample], int]:
    return lambda run: holds(run) * run.prefixes.get("prefix_hits", 0)


def _is_told_of_prompt(how: str) -> Callable[[RequestSample], bool]:
    return lambda request: how in request.prompt_logprobs


def _of_ranks(name: str) -> Callable[[RunSample], int]:
    return lambda run: run.ranks.get(name, 0)


def _is_verify_at(width: int) -> Callable[[StepLaunch], bool]:
    return lambda launch: launch.kind == LaunchKind.VERIFY and launch.width == width


def _is_committed(accept: str) -> Callable[[RoundSample], bool]:
    return lambda round_: _is_hybrid(round_) and round_.accept == accept


def _is_path(commit: str) -> Callable[[RoundSample], bool]:
    """Return whether the rows that were accepted are not the first ones of a tree, beside states of this commit."""
    return lambda round_: round_.request.run.layers == commit and "tree_entries_moved" in round_.tree


def _completes_checkpoint(commit: str) -> Callable[[RoundSample], bool]:
    return lambda round_: round_.request.run.layers == commit and round_.checkpoint in ("one", "two and more")


_RUNS: Table[RunSample] = {
    "scenarios": lambda run: 1,
    # What of them was seen at all.
    "scenarios_shown": lambda run: run.is_shown,
    "texts_shown": lambda run: run.has_text,
    "drafts_seen": lambda run: run.drafts_seen,
    "engine_steps": lambda run: run.engine_steps,
    "exact_ties": lambda run: run.exact_ties,
    "ties": lambda run: run.ties,
    "token_ties": lambda run: run.token_ties,
    **{f"poison_{poison}": _is_one(poison=poison) for poison in "01"},
    **{f"variant_{name}": _is_one(changed=name) for name in VARIANTS},
    "adaptive_scenarios": lambda run: run.control.startswith("adaptive"),
    "by_batch_scenarios": lambda run: run.is_by_batch,
    "hybrid_scenarios": lambda run: run.is_hybrid,
    "tree_scenarios": lambda run: run.form.tree is not None,
    **{f"{name}_scenarios": _is_one(draft=name) for name in ALGORITHMS},
    "layers_chained": lambda run: run.chained_extends * (run.chain != "unchained"),
    "layers_unchained": lambda run: run.chained_extends * (run.chain == "unchained"),
    "chains_of_one": lambda run: run.first_layer_extends * (run.chain == "one layer"),
    "guesses_replaced": lambda run: run.guesses_replaced,
    "states_taken_before_norm": _is_one(takes="before_norm"),
    "states_handed_before_norm": _is_one(handed="before_norm"),
    "own_embeddings": _is_one(embedding="own"),
    "own_heads": _is_one(head="own"),
    "own_vocabularies": lambda run: run.vocabulary in ("other order", "reduced"),
    "first_embeddings_masked": _is_one(first_embedding="masked"),
    **{name: _of_prefixes(name) for name in (*COUNTS, *OF_STATES)},
    **{name: _of_ranks(name) for name in (*OF_RANKS, *OF_TENSOR_RANKS)},
    **{name: _of_step_tokens(name) for name in OF_STEP_TOKENS},
    **{name: _of_mixed(name) for name in OF_MIXED},
    **{name: _of_overlap(name) for name in OF_OVERLAP},
    **{name: _of_handovers(name) for name in OF_HANDOVERS},
    "prefix_hits_of_trees": _hits_where(lambda run: run.form.tree is not None),
    "prefix_hits_under_controllers": _hits_where(lambda run: run.control.startswith("adaptive")),
    "prefix_hits_by_batch_size": _hits_where(lambda run: "draft batch" in run.control),
    "windows_unequal": lambda run: run.unequal_windows,
    "coded_targets": lambda run: run.entries not in (None, "whole"),
    "coded_drafts": lambda run: run.draft_entries not in (None, "whole"),
    "formats_differ": lambda run: run.draft_entries is not None and run.draft_entries != run.entries,
}
_REQUESTS: Table[RequestSample] = {
    "requests": lambda request: 1,
    "rounds": lambda request: request.is_prefilled,
    "tokens_emitted": lambda request: request.tokens,
    "settled_tokens": lambda request: request.is_text_settled * request.tokens,
    "chunked_prefills": lambda request: request.is_chunked,
    **{f"prompt_logprobs_{name}": _is_told_of_prompt(name) for name in ("told", "in_chunks", "behind_prefix")},
    "variant_alone_of_served": lambda request: request.run.changed == "alone" and request.prefix in ("in part", "all"),
    "variant_alone_of_resumed": lambda request: request.run.changed == "alone" and request.preemptions > 0,
    **{f"aborted_{when}": _is_one(aborted=when) for when in ABORTED},
    "aborted_before_others": lambda request: request.is_aborted_before_others,
    "aborted_on_served_pages": lambda request: request.is_aborted_on_served_pages,
    "preemptions": lambda request: request.preemptions,
    "preempted_again": _is_one(preempted="again"),
    "resumed_in_first_round": _is_one(resumed_in="1"),
    "resumed_in_chunks": lambda request: request.resumed_in_chunks,
    "long_requests": lambda request: request.length in _LONG,
    "preemptions_of_hybrids": lambda request: request.run.is_hybrid * request.preemptions,
    "sequences_across_resume": lambda request: request.ends_across_resume,
    "admitted_before_others": lambda request: request.is_admitted_before_others,
    "slot_reuses": lambda request: request.reuses,
    "slot_reuses_by_shorter": lambda request: request.shorter_reuses,
    "state_slot_reuses": lambda request: request.state not in (None, "fresh"),
    # From a state that is not zero, or for a real model from zero where there is poison.
    "states_started": lambda request: request.state is not None and request.run.start != "zero",
    "finals": lambda request: request.run.is_hybrid and request.has_final_state,
    "finals_flushed": lambda request: request.run.is_hybrid * request.flushes,
    "stops_in_accepted_run": lambda request: request.stops_in_run,
    "limits_hit": lambda request: request.is_at_limit,
    "zero_tails": lambda request: request.zero_tails,
    **{name: _is_of_ends(name) for name in OF_ENDS},
    "image_prompts": lambda request: request.is_prefilled and request.images not in (None, "none"),
    "images_cut": lambda request: request.is_prefilled and request.cuts_image,
    "window_prompts": lambda request: request.is_prefilled and request.beyond_window,
    "window_pages_freed": lambda request: request.pages_freed,
}
_BATCHES: Table[BatchSample] = {
    "batch_shrinks": lambda batch: batch.has_fewer_rows,
    "batch_grows": lambda batch: batch.has_more_rows,
    "shrink_below_captured_size": lambda batch: batch.is_below_captured_size,
    "oversized_batches": _is_one(rows="oversized"),
    "hybrid_oversized_batches": lambda batch: batch.run.is_hybrid and batch.rows == "oversized",
    "mixed_draft_counts": lambda batch: batch.mix in ("unequal", "zero among"),
    "no_drafts_among_drafts": _is_one(mix="zero among"),
    "prefill_beside_decode": _is_one(beside="prefill"),
    "step_switches_up": lambda batch: batch.steps_change > 0,
    "step_switches_down": lambda batch: batch.steps_change < 0,
    "batches_without_steps": lambda batch: batch.steps == 0,
    "steps_after_none": lambda batch: batch.steps == batch.steps_change > 0,
    "batches_without_drafts": lambda batch: not batch.has_drafts,
    "drafts_after_batch_without": lambda batch: batch.drafts_again,
    "batches_too_large_for_drafts": lambda batch: batch.is_too_large_for_drafts,
    "uneven_batches": lambda batch: batch.is_uneven,
    "half_sampled_batches": lambda batch: batch.is_half_sampled,
    "deltas_beside_each_other": lambda batch: batch.has_deltas,
    "unfound_beside_found": lambda batch: (
        batch.run.form.proposes == "lookup"
        and batch.run.control.startswith("adaptive")
        and batch.is_unfound_beside_found
    ),
}
_LAUNCHES: Table[StepLaunch] = {
    "captures": lambda launch: launch.kind == LaunchKind.CAPTURE,
    "graph_replays": lambda launch: launch.kind in GRAPHED and launch.replays > 0,
    "eager_launches": lambda launch: launch.kind in GRAPHED and launch.size == 0,
    "padded_replays": lambda launch: launch.kind in GRAPHED and launch.replays > 0 and launch.rows < launch.size,
    **{f"verifies_at_width_{width}": _is_verify_at(width) for width in _WIDTHS},
    "verifies_at_larger_widths": lambda launch: launch.kind == LaunchKind.VERIFY and launch.width not in _WIDTHS,
}


def _is_of_tree(name: str) -> Callable[[RoundSample], bool]:
    return lambda round_: name in round_.tree


def _is_told(name: str) -> Callable[[RoundSample], bool]:
    return lambda round_: name in round_.told


def _is_padded(round_: RoundSample) -> bool:
    return round_.batch is not None and round_.batch.rows == "padded"


def _is_partial_in_padding(round_: RoundSample) -> bool:
    return round_.accept == "partial" and _is_padded(round_)


def _is_alternating(round_: RoundSample) -> bool:
    return {round_.before, round_.accept} == {"all", "none"}


def _is_hybrid(round_: RoundSample) -> bool:
    return round_.request.run.is_hybrid


def _forwards(round_: RoundSample) -> int:
    return round_.request.run.form.forwards(round_.depth)


# Of the rounds that the subject reports.
_ROUNDS: Table[RoundSample] = {
    "rounds": lambda round_: 1,
    "decode_rounds": lambda round_: 1,
    "draft_steps": _forwards,
    "second_draft_steps": lambda round_: _forwards(round_) > 1,
    "verify_rows": lambda round_: round_.drafts + 1,
    "drafts_accepted": lambda round_: round_.correct_len,
    "drafts_rejected": lambda round_: round_.drafts - round_.correct_len,
    "own_accepted": lambda round_: (round_.proposals == "own") * round_.correct_len,
    "own_rejected": lambda round_: (round_.proposals == "own") * (round_.drafts - round_.correct_len),
    **{f"accept_{accept}": _is_one(accept=accept) for accept in ("none", "partial", "all")},
    "accept_alternating": _is_alternating,
    # What came of forced drafts, and what was to come of them.
    **{
        f"forced_{accept}": _is_one(proposals="forced", accept=accept, is_sampled=False)
        for accept in ("none", "partial", "all")
    },
    **{f"asked_{asked}": _is_one(asked=asked) for asked in ("none", "partial", "all", "own")},
    "planned_rounds": lambda round_: round_.drafts > 0 and round_.asked != "drawn",
    "rounds_with_wrong_drafts": lambda round_: round_.wrong is not None,
    **{f"wrong_{kind}": _is_one(wrong=kind) for kind in WRONG},
    "sampled_accepted": lambda round_: round_.is_sampled * round_.correct_len,
    "sampled_residuals": lambda round_: round_.is_sampled and round_.correct_len < round_.drafts,
    "sampled_after_all": lambda round_: round_.is_sampled and round_.accept == "all",
    "drafts_drawn": lambda round_: round_.is_drawn * round_.drafts,
    "drawn_accepted": lambda round_: round_.is_drawn * round_.correct_len,
    "drawn_residuals": lambda round_: round_.is_drawn and round_.correct_len < round_.drafts,
    "drawn_after_all": lambda round_: round_.is_drawn and round_.accept == "all",
    "sampled_dynamic_rounds": lambda round_: (
        round_.is_sampled and round_.drafts > 0 and round_.request.run.control != "fixed"
    ),
    "sampled_stops": lambda round_: (
        round_.is_sampled and round_.stage in ("only", "last") and round_.request.stopped_by is not None
    ),
    "sampled_top_k_1": _is_one(filter="top-k 1"),
    "greedy_beside_sampled": lambda round_: not round_.is_sampled and round_.request.run.is_sampled,
    "rounds_with_drafts": lambda round_: round_.drafts > 0,
    "rounds_without_drafts": _is_one(accept="no drafts"),
    "rounds_of_several_drafts": lambda round_: round_.K not in ("0", "1"),
    "rounds_of_many_drafts": lambda round_: round_.K in ("6 and 7", "8 and more"),
    "first_rounds_with_drafts": lambda round_: round_.stage in ("first", "only") and round_.drafts > 0,
    "drafts_cut_by_budget": _is_one(limit="budget"),
    "drafts_cut_by_max_len": _is_one(limit="max_len"),
    "drafts_after_none": lambda round_: round_.before == "no drafts" and round_.drafts > 0,
    "all_accepted_then_draft": lambda round_: round_.before == "all" and round_.drafts > 1,
    "unsteered_rounds": _is_one(proposals="own"),
    "page_crossings": lambda round_: round_.crossing != "none",
    "contexts_at_page_boundary": lambda round_: round_.page in ("at", "every"),
    "partial_accept_padded_replay": _is_partial_in_padding,
    "partial_accept_padded_replay_at_page_boundary": lambda round_: (
        _is_partial_in_padding(round_) and round_.crossing != "none"
    ),
    "taps_off_long_proposals": lambda round_: (
        round_.request.run.changed == "taps_off" and round_.proposals == "own" and round_.drafts >= 3
    ),
    **{f"states_committed_{accept}": _is_committed(accept) for accept in ("none", "partial", "all")},
    "states_committed_without_drafts": lambda round_: _is_hybrid(round_) and not round_.drafts,
    "states_alternating": lambda round_: _is_hybrid(round_) and _is_alternating(round_),
    "snapshot_rounds": lambda round_: round_.request.run.layers == "snapshot" and round_.drafts > 0,
    "replays_folded": lambda round_: _is_hybrid(round_) and round_.pending > 0,
    **{f"checkpoints_{commit}": _completes_checkpoint(commit) for commit in ("snapshot", "replay")},
    "checkpoints_two_at_once": _is_one(checkpoint="two and more"),
    "checkpoints_kept": _is_one(checkpoint="kept"),
    "hybrid_padded_replays": lambda round_: _is_hybrid(round_) and _is_padded(round_),
    **{f"tree_states_{commit}": _is_path(commit) for commit in ("snapshot", "replay")},
    "tree_states_off_first_branch": lambda round_: _is_hybrid(round_) and "trees_off_first_branch" in round_.tree,
    "tree_states_checkpoints": lambda round_: (
        _is_hybrid(round_) and "tree_entries_moved" in round_.tree and round_.checkpoint in ("one", "two and more")
    ),
    "blocks": lambda round_: round_.request.run.form.proposes == "block" and round_.drafts > 0,
    "blocks_cut": _is_one(block="cut"),
    "matches": lambda round_: bool(round_.found),
    "no_matches": lambda round_: round_.found == 0,
    "matches_after_partial": lambda round_: bool(round_.found) and round_.before == "partial",
    "matches_of_fewer": lambda round_: bool(round_.found) and round_.is_fewer_found,
    "out_of_vocabulary": lambda round_: round_.lacks,
    "beams": lambda round_: (
        len(round_.tree & {"tree_rounds"}) * (round_.depth > 1 and round_.request.run.form.proposes == "steps")
    ),
    "trees_cut_by_nodes": _is_one(nodes="some"),
    "trees_cut_by_limits": lambda round_: "tree_rounds" in round_.tree and round_.limit in ("budget", "max_len"),
    "trees_moved_to_another_page": _is_one(moved="to another page"),
    **{name: _is_of_tree(name) for name in (*OF_TREES, *OF_TRIES, *SAMPLED_TREES)},
    **{name: _is_told(name) for name in (*OF_PENALTIES, *OF_GRAMMARS, *OF_MINIMA)},
    "logprobs_of_several": lambda round_: round_.has_logprobs and round_.correct_len > 0,
    "logprobs_behind_rejection": lambda round_: round_.has_logprobs and round_.correct_len < round_.drafts,
    "logprobs_of_sampled": lambda round_: round_.has_logprobs and round_.is_sampled,
    "window_rounds": lambda round_: round_.window in ("left", "beyond"),
    "window_drafts": lambda round_: round_.beyond_draft_window and round_.drafts > 0,
    "windows_left": _is_one(window="left"),
    "image_rounds": lambda round_: round_.request.delta != 0,
    "codes_moved": lambda round_: "tree_entries_moved" in round_.tree and round_.request.run.entries != "whole",
    "free_beside_grammar": lambda round_: round_.request.run.is_constrained and not round_.is_constrained,
}
NAMES = tuple(dict.fromkeys((*_RUNS, *_REQUESTS, *_BATCHES, *_LAUNCHES, *_ROUNDS, "narrow_replays")))
OF_ROUNDS, OF_BATCHES, OF_LAUNCHES = (frozenset(table) - {"rounds"} for table in (_ROUNDS, _BATCHES, _LAUNCHES))
"""Counts of decode rounds, decode batches and launches."""

# What a draft must be to reach a count.
OF_TWO = frozenset(
    [
        "layers_chained",
        "guesses_replaced",
        "accept_partial",
        "partial_accept_padded_replay",
        "all_accepted_then_draft",
        "partial_accept_padded_replay_at_page_boundary",
        "taps_off_long_proposals",
        "states_committed_partial",
        "step_switches_up",
        "step_switches_down",
    ]
)
_TREE_STATES = frozenset({name for name in NAMES if name.startswith("tree_states_")})
TREES = frozenset({"tree_scenarios", "codes_moved", "beams", *OF_TREES, *OF_TRIES, *SAMPLED_TREES, *_TREE_STATES}) | {
    "trees_cut_by_nodes",
    "trees_cut_by_limits",
    "trees_moved_to_another_page",
    "prefix_hits_of_trees",
}
"""Counts of rounds whose drafts are trees, and of states along them."""
OF_DRAWN = frozenset({"drafts_drawn", "drawn_accepted", "drawn_residuals", "drawn_after_all"})
"""Counts of drafts that are drawn."""
SAMPLED = frozenset(
    {"sampled_accepted", "sampled_residuals", "sampled_after_all", "greedy_beside_sampled", *SAMPLED_TREES}
    | {"sampled_dynamic_rounds", "sampled_stops", "sampled_top_k_1", "half_sampled_batches"}
    | OF_DRAWN
)
"""Counts of requests that draw their tokens."""
OF_PROMPTS = frozenset({"prompt_logprobs_told", "prompt_logprobs_in_chunks", "prompt_logprobs_behind_prefix"})
"""Requests that were told of their prompts, in several chunks, and behind what a prefix cache had served them."""
LOGPROBS = frozenset({"logprobs_of_several", "logprobs_behind_rejection", "logprobs_of_sampled"}) | OF_PROMPTS
LOGPROBS |= {"prefix_hits_cut_by_logprobs"}
"""Counts of rounds of requests that ask for logprobs, and of those that ask for them of their prompts."""
CONSTRAINED = frozenset({*OF_GRAMMARS, "free_beside_grammar"})
"""Counts of requests with a grammar, and of those beside them."""
ENDED = frozenset({*OF_ENDS, *OF_MINIMA, "sequences_across_resume"})
"""Counts of requests that end by more than stop ids of their own and limits."""
HYBRID = frozenset(
    {"hybrid_scenarios", "hybrid_padded_replays", "hybrid_oversized_batches", "variant_other_commit"}
    | {"state_slot_reuses", "states_started", "states_alternating", "snapshot_rounds", "replays_folded"}
    | {name for name in NAMES if name.startswith(("states_committed_", "checkpoints_", "finals", "tree_states_"))}
    | set(OF_STATES)
)
"""Counts that no scenario of a model without linear layers can reach."""


_OF_SCENARIO = frozenset({"scenarios", "scenarios_shown", "texts_shown"}) | frozenset(
    name for name in _RUNS if name.startswith(("poison_", "variant_")) or name.endswith("_scenarios")
)


def counts(evidence: Evidence) -> dict[str, int]:
    """Return every name of NAMES, 0 where nothing of the kind happened. Additive over scenarios."""
    if evidence.ranks and evidence.beside:
        # Every rank does the same.
        return counts(replace(evidence, ranks=()))
    if evidence.ranks:
        return _of_all_ranks([counts(replace(one, ranks=())) for one in evidence.ranks])
    samples, counter = read_samples(evidence), Counter[str]()
    _add(counter, _RUNS, (samples.run,))
    _add(counter, _REQUESTS, samples.requests)
    _add(counter, _BATCHES, samples.batches)
    _add(counter, _LAUNCHES, samples.launches)
    _add(counter, _ROUNDS, tuple(round_ for round_ in samples.rounds if round_.is_reported))
    narrow = (one for one in samples.launches if one.kind == LaunchKind.VERIFY and one.width <= samples.run.steps)
    counter["narrow_replays"] = sum(launch.replays > 0 for launch in narrow)
    return {name: counter[name] for name in NAMES}


def _of_all_ranks(each: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the counts of a scenario: it is one, and what its ranks did is added up."""
    return {
        name: max(one[name] for one in each) if name in _OF_SCENARIO else sum(one[name] for one in each)
        for name in NAMES
    }


def _add(counter: Counter[str], table: Table[T], samples: Sequence[T]) -> None:
    for name, count in table.items():
        counter[name] += sum(count(sample) for sample in samples)


def total(each: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum over scenarios, with every name present."""
    counter = Counter(dict.fromkeys(NAMES, 0))
    for one in each:
        counter.update(one)
    return dict(counter)


def unreached(minimum: Iterable[str], counted: Mapping[str, int], unreachable: frozenset[str]) -> tuple[str, ...]:
    """Return in words the counts of a minimum that are zero and need not be."""
    return tuple(f"{name} >= 1" for name in minimum if name not in unreachable and not counted.get(name))
