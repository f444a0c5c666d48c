"""What a subject cannot show: counts that are listed for it, and not demanded (docs/semantics.md, S-SUBJECT-3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from draftproof.properties.coverage.counts import (
    CONSTRAINED,
    ENDED,
    HYBRID,
    LOGPROBS,
    OF_ABORTS,
    OF_ALONE,
    OF_BATCHES,
    OF_CODES,
    OF_IMAGES,
    OF_LAUNCHES,
    OF_PENALTIES,
    OF_PREEMPTIONS,
    OF_PREFIXES,
    OF_ROUNDS,
    OF_TWO,
    OF_WINDOWS,
    SAMPLED,
    TREES,
)
from draftproof.properties.coverage.read_handovers import OF_HANDOVERS
from draftproof.properties.coverage.read_mixed import OF_MIXED
from draftproof.properties.coverage.read_overlap import OF_OVERLAP
from draftproof.properties.coverage.read_step_tokens import OF_STEP_TOKENS
from draftproof.properties.evidence.rank_counts import OF_RANKS, OF_TENSOR_RANKS
from draftproof.properties.values.features import BY_NAME, FEATURES
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.scenario import VARIANTS, WRONG

_PADDED = {
    "partial_accept_padded_replay",
    "partial_accept_padded_replay_at_page_boundary",
    "hybrid_padded_replays",
}
_PLACED = {"slot_reuses", "slot_reuses_by_shorter"}
_BY_CHANNEL = {
    "rank.collectives": {*OF_RANKS, *OF_TENSOR_RANKS},
    "commit.length": {"layers_chained", "layers_unchained", "guesses_replaced", "overlap_cut_ends"},
    "accept.emitted": {
        *("tokens_emitted", "settled_tokens", "stops_in_accepted_run", "texts_shown", "image_prompts", "images_cut"),
        "window_prompts",
    },
    "accept.correct_len": {*OF_ROUNDS, "stops_in_accepted_run"},
    "round.rows": {
        *(*OF_BATCHES, *_PADDED, *_PLACED, "engine_steps", "variant_rows_permuted", "chunked_prefills"),
        *(
            "admitted_before_others",
            "matches_of_fewer",
            "blocks_cut",
            *OF_PREFIXES,
            *OF_ABORTS,
            *OF_STEP_TOKENS,
            *OF_HANDOVERS,
            *OF_OVERLAP,
            "prompt_logprobs_in_chunks",
        ),
        *("drafts_cut_by_budget", "drafts_cut_by_max_len", "trees_cut_by_nodes", "trees_cut_by_limits"),
    },
    "round.table": {*_PLACED, "variant_pages_permuted", *OF_PREFIXES} - {"prefix_misses"}
    | {"window_pages_freed", "aborted_on_served_pages", "overlap_admitted_behind"},
    "round.state": {"state_slot_reuses", "states_started"},
    "commit.pending": {"replays_folded"},
    "commit.final": {"finals"},
    "commit.unfolded": {"finals_flushed"},
    "graph.replay": {*OF_LAUNCHES, *OF_MIXED, *_PADDED, "narrow_replays", "shrink_below_captured_size"},
}
"""Channel -> the counts that are read from it. Others are read from the scenario, its script and the reference."""
_FORCED = {f"{kind}_{accept}" for kind in ("forced", "asked") for accept in ("none", "partial", "all")}
# Without forced drafts these come as they come: a trained head reaches them, and a random one does not.
_BY_STEERING = _FORCED | {*(f"wrong_{kind}" for kind in WRONG), "rounds_with_wrong_drafts"}
_BY_LUCK = {"accept_none", "accept_partial", "accept_all", "accept_alternating", "all_accepted_then_draft"}
_BY_LUCK |= {"partial_accept_padded_replay", "partial_accept_padded_replay_at_page_boundary"}
_BY_LUCK |= {"states_committed_none", "states_committed_partial", "states_committed_all", "states_alternating"}
_BY_COUNTS = {"rounds_without_drafts", "drafts_after_none", "mixed_draft_counts", "no_drafts_among_drafts"}
_BY_COUNTS |= {"zero_tails"}
_BY_ARRIVAL = {"batch_grows", "prefill_beside_decode", "admitted_before_others"}
_OF_BATCHES = {"batch_shrinks", "mixed_draft_counts", "no_drafts_among_drafts", "shrink_below_captured_size"}
_OF_BATCHES |= {"slot_reuses", "slot_reuses_by_shorter", "state_slot_reuses", "unfound_beside_found"}
_OF_BATCHES |= {"uneven_batches", "half_sampled_batches"}
_OF_CONTROLLERS = {"adaptive_scenarios", "by_batch_scenarios", "step_switches_up", "step_switches_down"}
_OF_CONTROLLERS |= {"batches_without_steps", "steps_after_none", "batches_without_drafts", "narrow_replays"}
_OF_CONTROLLERS |= {
    "sampled_dynamic_rounds",
    "batches_too_large_for_drafts",
    "drafts_after_batch_without",
    "unfound_beside_found",
    "prefix_hits_under_controllers",
    "prefix_hits_by_batch_size",
}
_OF_SEVERAL_DRAFTS = {*OF_TWO, "second_draft_steps", "matches_after_partial", "matches_of_fewer"}


Level = Literal["text", "counters", "host", "tensors", "whole"]
"""How much of a run a subject shows: its tokens, how many drafts were right, what its host knows, tensors, all."""
_OF_LEVELS: tuple[tuple[Level, frozenset[str]], ...] = (
    ("whole", frozenset({"graph.replay", "pool.owners", "verify.hidden"})),
    ("tensors", frozenset({"verify.hidden", "commit.kv", "extend.kv", "extend.hidden_in", "draft.step.hidden_in"})),
    ("host", frozenset({"propose.tokens", "round.drafts", "round.rows", "round.table", "verify.slots"})),
    ("counters", frozenset({"accept.correct_len", "total.drafts", "total.accepted", "total.accepted_at"})),
)


class Uncovered(NamedTuple):
    """Counts that a subject cannot reach, and why, in words."""

    because: str
    names: frozenset[str]


def uncovered(limits: Limits, channels: frozenset[str]) -> list[Uncovered]:
    """Return what a subject with these limits, which reports these channels, cannot show."""
    # What was accepted of drafts that are reported follows from them.
    follows = {"accept.correct_len": OF_ROUNDS} if "round.drafts" in channels else {}
    by_channel = (
        Uncovered(f"{channel} is not reported", frozenset(names) - follows.get(channel, frozenset()))
        for channel, names in _BY_CHANNEL.items()
        if channel not in channels
    )
    return [*by_channel, *(Uncovered(because, frozenset(names)) for because, names in _by_limits(limits))]


def not_covered(limits: Limits, channels: frozenset[str]) -> frozenset[str]:
    """Return the names of the counts that a subject cannot show."""
    return frozenset().union(*(one.names for one in uncovered(limits, channels)))


def not_asked_with(features: Sequence[str]) -> frozenset[str]:
    """Return the names of the counts of variants, of all features but these, and those that these never reach.

    Scenarios that were selected by features are not asked for them.
    """
    asked = {BY_NAME[name].limit for name in features}
    never = frozenset(count for name in features for count in BY_NAME[name].lacks)
    lacking = {one.limit: False for one in FEATURES if one.limit and one.limit not in asked}
    others = (names for _, names in _by_limits(replace(NO_LIMITS, variants=(), **lacking)))
    return never.union(*others, () if "hybrid" in features else HYBRID)


def level_of(channels: frozenset[str]) -> Level:
    """Return how much a subject with these channels shows: all, or something of the highest level."""
    (whole, needed), *others = _OF_LEVELS
    return whole if needed <= channels else next((level for level, some in others if some & channels), "text")


def _by_limits(limits: Limits) -> Iterator[tuple[str, set[str]]]:
    if limits.steering != "drafts":
        yield "the script cannot force its drafts", _BY_STEERING | _BY_LUCK
    if limits.steering == "none":
        yield "the script cannot say how many drafts a round has", _BY_COUNTS
    if limits.arrivals != "by step":
        yield "requests cannot come at a chosen step", _BY_ARRIVAL
    if limits.arrivals == "serial" or limits.max_rows == 1:
        yield "requests are served one after another", _OF_BATCHES
    if limits.max_drafts == 1:
        yield "a round has one draft", _OF_SEVERAL_DRAFTS
    if not limits.controllers:
        yield "its step count is fixed", _OF_CONTROLLERS
    if not limits.preemption:
        yield "it takes no pages on demand", {*OF_PREEMPTIONS, "aborted_preempted", "variant_alone_of_resumed"}
    if not limits.caching:
        of_served = {"aborted_on_served_pages", "prompt_logprobs_behind_prefix", "variant_alone_of_served"}
        yield "it keeps no pages for others", {*OF_PREFIXES, *of_served}
    if not limits.aborts:
        yield "its requests are served to their ends", set(OF_ABORTS)
    if not limits.ends:
        yield "its requests end by stop ids of their own and by limits", set(ENDED)
    if not limits.step_tokens:
        yield "its steps have no budget of tokens", set(OF_STEP_TOKENS)
    if not limits.mixed:
        yield "its chunks and verify rows have launches of their own", {*OF_MIXED, "variant_unmixed"}
    if not limits.overlap:
        yield "its host waits for the results of every step", {*OF_OVERLAP, "variant_unoverlapped"}
    if not limits.handover:
        yield "one engine runs its prompts and its rounds", set(OF_HANDOVERS)
    if not limits.windows:
        yield "its layers see everything", set(OF_WINDOWS)
    if not limits.codes:
        yield "its entries are kept as they are computed", set(OF_CODES)
    if not limits.images:
        yield "its tokens have one position", set(OF_IMAGES)
    if not limits.ranks:
        yield "its engines do not run in lockstep", {*OF_RANKS, *OF_TENSOR_RANKS}
    if not limits.sampling:
        yield "its requests draw no tokens", set(SAMPLED)
    if not limits.penalties:
        yield "its requests have no penalties", set(OF_PENALTIES)
    if not limits.grammars:
        yield "its requests have no grammar", set(CONSTRAINED)
    if not limits.logprobs:
        yield "its requests have no logprobs", set(LOGPROBS)
    if not limits.trees:
        yield "its drafts are no trees", set(TREES)
    if not limits.unchained:
        yield "layers of its MTP drafts are always chained", {"layers_unchained"}
    if limits.chunks == "own":
        yield "it cuts prompts by a rule of its own", {"chunked_prefills"}
    if lacking := [name for name in VARIANTS if name not in limits.variants]:
        more = {"taps_off_long_proposals"} if "taps_off" in lacking else set()
        more |= set(OF_ALONE) if "alone" in lacking else set()
        yield f"it has no variant {', '.join(lacking)}", {f"variant_{name}" for name in lacking} | more
