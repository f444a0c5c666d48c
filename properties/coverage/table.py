"""Facts of no feature. `K` drafts of a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from draftproof.properties.coverage.fact import Fact, facts_of, has, one_of, variant, within
from draftproof.properties.values.drafts import DraftKind, Eagle, Mtp, Proposes
from draftproof.properties.values.observed import GRAPHED, LaunchKind
from draftproof.properties.values.scenario import WRONG

_FORCED, _PARTLY = "forced drafts", "forced drafts, several drafts"
_SEVERAL, _ROWS = "several drafts", "several rows"
_CONTROLLED = "adaptive-steps|draft-batch"


def _proposing(proposes: Proposes) -> Callable[[DraftKind], bool]:
    return lambda kind: kind.proposes == proposes


def _of_draft(holds: Callable[[Any], object]) -> Callable[[Any], bool]:
    """Return a reader of runs: something holds of a draft that is fed with the target's last hidden states."""
    return lambda run: isinstance(run.scenario.draft, Eagle | Mtp) and bool(holds(run.scenario.draft))


def _has_equal_sizes(model: Any) -> bool:
    """Return whether a probe's keys are as wide as its values, as they are in most models."""
    return getattr(model, "key_dim", 0) == getattr(model, "value_dim", None)


def _has_wide_draft(run: Any) -> bool:
    """Return whether a probe's draft is as wide as its target."""
    return getattr(run.scenario.draft, "lanes", 0) == getattr(run.scenario.model, "lanes", None)


_run, _chain = facts_of("run"), facts_of("run", drafts=_proposing("chain"))
_entries = facts_of("run", drafts=lambda kind: kind.hidden == "last", real=False)
RUN_FACTS = (
    Fact("scenarios", "scenario", lambda run: 1),
    Fact("scenarios_shown", "scenario", lambda run: run.is_shown),
    Fact("texts_shown", "scenario", lambda run: run.has_text, channels="accept.emitted"),
    _run("drafts_seen", lambda run: run.drafts_seen),
    _run("ties", lambda run: run.ties),
    _run("token_ties", lambda run: run.token_ties),
    variant("graph_vs_eager"),
    variant("other_memory", channels="round.table"),
    variant("other_batches", channels="round.rows"),
    variant("taps_off"),
    variant("alone", real=False),
    _chain(
        "layers_chained",
        lambda run: run.chained_extends * (run.chain != "unchained"),
        "layers: chained",
        channels="commit.length",
        takes=_SEVERAL,
    ),
    _chain(
        "layers_unchained",
        lambda run: run.chained_extends * (run.chain == "unchained"),
        "layers: unchained",
        channels="commit.length",
        takes="unchained layers",
        layers=range(2, 17),
    ),
    _chain(
        "chains_of_one",
        lambda run: run.first_layer_extends * (run.chain == "one layer"),
        "layers: one",
        layers=range(1, 2),
    ),
    _chain("layers_to_spare", has(chain="layers to spare"), "layers: to spare", layers=range(2, 17)),
    _chain(
        "guesses_replaced",
        lambda run: run.guesses_replaced,
        "layers: a guess replaced",
        channels="commit.length",
        takes=_SEVERAL,
    ),
    _entries(
        "states_taken_before_norm",
        _of_draft(lambda draft: draft.takes == "before_norm"),
        "draft of entries: takes states before the norm",
    ),
    _entries(
        "states_handed_before_norm",
        _of_draft(lambda draft: draft.handed == "before_norm"),
        "draft of entries: hands them on before the norm",
    ),
    _entries("own_embeddings", _of_draft(lambda draft: draft.own_embedding), "draft of entries: own embedding"),
    _entries("own_heads", _of_draft(lambda draft: draft.own_head), "draft of entries: own head"),
    _entries("own_vocabularies", _of_draft(lambda draft: draft.head_vocab), "draft of entries: own vocabulary"),
    _entries(
        "first_embeddings_masked",
        _of_draft(lambda draft: draft.masks_first),
        "draft of entries: first embedding masked",
    ),
    *within("page size", "run", "page_size", (1, 2, 3, 4, 5, 8), real=False),
    _run(
        "keys_as_wide_as_values",
        lambda run: _has_equal_sizes(run.scenario.model),
        "sizes: keys as wide as values",
        real=False,
    ),
    _run(
        "drafts_as_wide_as_targets",
        _has_wide_draft,
        "sizes: draft as wide as target",
        drafts=lambda kind: kind.proposes != "lookup",
        real=False,
    ),
    _run("large_vocabularies", lambda run: run.scenario.model.vocab > 61, "sizes: more than 61 tokens", real=False),
    _run(
        "narrow_replays",
        lambda run: run.narrow_replays,
        "graphs: narrower than the steps",
        channels="graph.replay",
        takes=_CONTROLLED,
    ),
)

_request = facts_of("request")
_SLOTS: dict[str, Any] = {"channels": "round.rows, round.table", "takes": _ROWS}
REQUEST_FACTS = (
    _request("rounds", lambda one: one.is_prefilled + one.rounds),
    _request("tokens_emitted", lambda one: one.tokens, channels="accept.emitted"),
    _request("settled_tokens", lambda one: one.is_text_settled * one.tokens, channels="accept.emitted"),
    *within("length", "request", "length", (1, 9, 17, 33, 65, 129, 257, 513), real=False),
    *one_of("chunks", "request", "chunks", ("one", "full", "short tail", "tail of one"), real=False),
    _request(
        "chunked_prefills",
        lambda one: one.is_chunked,
        "mixed batch: chunks",
        channels="round.rows",
        takes="cut prompts",
    ),
    _request(
        "admitted_before_others",
        lambda one: one.is_admitted_before_others,
        "batch changes: one that waited joined before others",
        channels="round.rows",
        takes="arrivals",
        real=False,
    ),
    _request("slot_reuses", lambda one: one.reuses, "batch changes: slot reused", **_SLOTS),
    _request(
        "slot_reuses_by_shorter",
        lambda one: one.shorter_reuses,
        "batch changes: slot reused by a shorter one",
        **_SLOTS,
    ),
    _request("zero_tails", lambda one: one.zero_tails, takes="draft counts", real=False),
    *one_of(
        "end",
        "request",
        "end",
        ("stop in run", "stop as bonus", "stop at prefill", "stop on budget", "budget", "max_len", "at prefill"),
        real=False,
    ),
    *one_of("stopped by", "request", "stopped_by", ("only one", "lowest", "higher"), real=False),
    _request(
        "stops_in_accepted_run",
        lambda one: one.stops_in_run,
        "stop: in the accepted run",
        channels="accept.emitted, accept.correct_len",
    ),
    _request(
        "stops_before_budget_in_run",
        shown="stop: before the budget in a run",
        takes="eos|min-tokens|stop-sequences",
        real=False,
    ),
    _request("limits_hit", lambda one: one.is_at_limit, "last step: ended"),
)

_batch = facts_of("batch")
BATCH_FACTS = (
    _batch("batch_shrinks", lambda one: one.has_fewer_rows, "batch changes: finished", takes=_ROWS),
    _batch("batch_grows", lambda one: one.has_more_rows, "batch changes: joined", takes="arrivals"),
    _batch(
        "shrink_below_captured_size",
        lambda one: one.is_below_captured_size,
        "padding: after a larger batch",
        channels="graph.replay",
        takes=_ROWS,
    ),
    _batch("oversized_batches", has(rows="oversized"), "graphs: eager beside them"),
    _batch(
        "mixed_draft_counts",
        lambda one: len(set(one.drafts)) > 1,
        "mixed batch: draft counts that differ",
        takes="draft counts, several rows",
    ),
    _batch(
        "no_drafts_among_drafts",
        lambda one: 0 in one.drafts and any(one.drafts),
        "mixed batch: rows without drafts",
        takes="draft counts, several rows",
    ),
    _batch("prefill_beside_decode", lambda one: one.is_beside_prefill, "mixed batch: prefill beside", takes="arrivals"),
    _batch("uneven_batches", lambda one: one.is_uneven, "mixed batch: uneven lengths", takes=_ROWS),
    _batch(
        "drafts_after_batch_without",
        lambda one: one.drafts_again,
        "adaptive steps: drafts after a batch without",
        takes=_CONTROLLED,
    ),
    *within("captured size", "batch", "size", (1, 7, 16), real=False),
    *within("rows", "batch", "num_rows", (1, 2, 3, 4, 6), real=False),
)

_launch = facts_of("launch")
LAUNCH_FACTS = (
    _launch("captures", lambda one: one.kind == LaunchKind.CAPTURE, "graphs: captured"),
    _launch("captures_at_start", lambda one: one.kind == LaunchKind.CAPTURE and one.step < 0, "graphs: at the start"),
    _launch("captures_in_steps", lambda one: one.kind == LaunchKind.CAPTURE and one.step >= 0, "graphs: late"),
    _launch("graph_replays", lambda one: one.kind in GRAPHED and one.replays > 0, "graphs: replayed"),
    _launch("eager_launches", lambda one: one.kind in GRAPHED and one.size == 0, "graphs: eager"),
    _launch(
        "padded_replays",
        lambda one: one.kind in GRAPHED and one.replays > 0 and one.rows < one.size,
        "padding: smaller than captured",
    ),
)


def _forwards(one: Any) -> int:
    """Return how many draft steps a round had."""
    return int(one.request.run.form.forwards(one.depth))


def _is_alternating(one: Any) -> bool:
    return {one.before, one.accept} == {"all", "none"}


def _is_forced(accept: str) -> Callable[[Any], bool]:
    return lambda one: one.proposals == "forced" and one.accept == accept and not one.is_sampled


def _is_long_and_untapped(one: Any) -> bool:
    """Return whether a proposal of three and more, in a scenario that is run without taps, too, is verified."""
    return bool(one.request.run.changed == "taps_off" and one.proposals == "own" and one.drafts >= 3)


_round = facts_of("round")
_steps, _block, _lookup = (facts_of("round", drafts=_proposing(proposes)) for proposes in ("steps", "block", "lookup"))
ROUND_FACTS = (
    _round("decode_rounds", lambda one: 1),
    _steps("draft_steps", _forwards),
    _steps("second_draft_steps", lambda one: _forwards(one) > 1, takes=_SEVERAL),
    _round("drafts_accepted", lambda one: one.correct_len),
    _round("drafts_rejected", lambda one: one.drafts - one.correct_len),
    _round("own_accepted", lambda one: (one.proposals == "own") * one.correct_len),
    _round("own_rejected", lambda one: (one.proposals == "own") * (one.drafts - one.correct_len)),
    _round("accept_none", has(accept="none"), "accepted: none", takes=_FORCED),
    _round("accept_partial", has(accept="partial"), "accepted: in part", takes=_PARTLY),
    _round("accept_all", has(accept="all"), "accepted: all", takes=_FORCED),
    _round("accept_alternating", _is_alternating, "accepted: alternating", takes=_FORCED),
    _round(
        "all_accepted_then_draft",
        lambda one: one.before == "all" and one.drafts > 1,
        "accepted: all, then drafts",
        takes=_PARTLY,
    ),
    *(_round(f"forced_{one}", _is_forced(one), takes=_FORCED) for one in ("none", "partial", "all")),
    *(_round(f"asked_{one}", has(asked=one), takes=_FORCED) for one in ("none", "partial", "all")),
    _round("asked_own", has(asked="own")),
    _round("planned_rounds", lambda one: one.drafts > 0 and one.asked != "drawn"),
    _round("unsteered_rounds", has(proposals="own"), "drafts of a round: not forced"),
    _round("rounds_with_wrong_drafts", lambda one: one.wrong is not None, takes=_FORCED),
    *one_of("first wrong draft", "round", "wrong", WRONG, takes=_FORCED),
    _round("rounds_with_drafts", lambda one: one.drafts > 0),
    _round("rounds_without_drafts", has(accept="no drafts"), "drafts of a round: none", takes="draft counts"),
    *within("drafts of a round", "round", "levels", (1, 2, 3, 4, 5, 6, 8), real=False),
    _round(
        "first_rounds_with_drafts",
        lambda one: one.stage in ("first", "only") and one.drafts > 0,
        "first step after prefill: with drafts",
    ),
    _round("drafts_cut_by_budget", has(limit="budget"), "last step: at the budget", channels="round.rows"),
    _round("drafts_cut_by_max_len", has(limit="max_len"), "last step: at max_len", channels="round.rows"),
    _round(
        "runs_cut_by_max_len", lambda one: one.is_cut_by_max_len, "last step: an accepted run up to max_len", real=False
    ),
    *one_of("rows behind drafts", "round", "surplus", ("inside", "beyond max_len"), channels="round.rows", real=False),
    _round("page_crossings", lambda one: one.pages_crossed > 0, "page boundary: crossed by drafts"),
    _round(
        "page_crossings_of_several", lambda one: one.pages_crossed > 1, "page boundary: several crossed", real=False
    ),
    *one_of("context on its page", "round", "page", ("every", "at", "after", "before", "inside"), real=False),
    _round(
        "taps_off_long_proposals", _is_long_and_untapped, takes="several drafts, variant taps_off", layers=range(3, 17)
    ),
    _block("blocks", lambda one: one.request.run.form.proposes == "block" and one.drafts > 0),
    _block("blocks_cut", has(block="cut"), "block: cut", channels="round.rows"),
    _lookup("matches", lambda one: bool(one.found), "lookup: found"),
    _lookup("no_matches", lambda one: one.found == 0, "lookup: nothing found"),
    _lookup(
        "matches_after_partial",
        lambda one: bool(one.found) and one.before == "partial",
        "lookup: found after a part was accepted",
        takes=_SEVERAL,
    ),
    _lookup(
        "matches_of_fewer",
        lambda one: bool(one.found) and one.is_fewer_found,
        "lookup: found fewer",
        channels="round.rows",
        takes=_SEVERAL,
    ),
    _round(
        "out_of_vocabulary",
        lambda one: one.lacks,
        "draft's vocabulary: without the right token",
        drafts=lambda kind: "out_of_vocabulary" in kind.minimum,
        real=False,
    ),
)
TABLE = (*RUN_FACTS, *REQUEST_FACTS, *BATCH_FACTS, *LAUNCH_FACTS, *ROUND_FACTS)
