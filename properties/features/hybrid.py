"""Targets with gated delta net layers: of all features the one that decides what memory there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from draftproof.properties.coverage.fact import facts_of, has, variant
from draftproof.properties.features.feature import Feature
from draftproof.properties.lib.paths import get, put
from draftproof.properties.values.scenario import ProbeModel, Scenario, States


def is_hybrid(scenario: Scenario) -> bool:
    """Return whether a probe target has layers with a recurrent state."""
    return isinstance(scenario.model, ProbeModel) and "linear_attention" in scenario.model.types


def without_hybrid(scenario: Scenario) -> Scenario:
    """Return the scenario with a target that attends in every layer, or in those that slide, if all are to slide."""
    if get(scenario, "model.linear") is None:
        return scenario
    types = tuple(kind for kind in get(scenario, "model.layer_types") if kind == "sliding_attention")
    types = types if len(types) == get(scenario, "model.layers") else ()
    dense = put(put(put(scenario, "model.layer_types", types), "model.linear", None), "states", States())
    dense = put(dense, "memory.checkpoint_slots", 0)
    # A dense target has no other way to commit.
    dense = put(dense, "variant", "none") if dense.variant == "other_commit" else dense
    return dense if types else put(dense, "model.window", 0)


def _completes(commit: str) -> Callable[[Any], bool]:
    """Return a reader: a round completes a checkpoint, beside states of this commit."""
    return lambda one: one.request.run.layers == commit and one.checkpoint in ("one", "two and more")


def _commits(accept: str) -> Callable[[Any], bool]:
    return lambda one: one.is_hybrid and one.accept == accept


def _starts(one: Any) -> bool:
    """Return whether a request's states start from what is not zero, or for a real model from zero where poison is."""
    linear = getattr(one.run.scenario.model, "linear", None)
    return one.has_state and (linear is None or linear.start)


def _is_alternating(one: Any) -> bool:
    return one.is_hybrid and {one.before, one.accept} == {"all", "none"}


def _has_square_states(run: Any) -> bool:
    linear = getattr(run.scenario.model, "linear", None)
    return linear is not None and linear.key_dim == linear.value_dim


_FORCED, _PARTLY = "forced drafts", "forced drafts, several drafts"
_request, _round = facts_of("request"), facts_of("round")
_FACTS = (
    facts_of("scenario")("hybrid_scenarios", lambda run: run.is_hybrid, "hybrid model: at all"),
    facts_of("run", real=False)("square_states", _has_square_states, "sizes: square states"),
    variant("other_commit"),
    _request(
        "state_slot_reuses",
        lambda one: one.reuses_state,
        "batch changes: state slot reused",
        channels="round.state",
        takes="several rows",
    ),
    _request("states_started", _starts, "hybrid model: states started", channels="round.state"),
    _request(
        "finals",
        lambda one: one.run.is_hybrid and one.has_final_state,
        "hybrid model: final states",
        channels="commit.final",
    ),
    _request(
        "finals_flushed",
        lambda one: one.run.is_hybrid * one.flushes,
        "hybrid model: final states flushed",
        channels="commit.unfolded",
    ),
    facts_of("batch")(
        "hybrid_oversized_batches",
        lambda one: one.run.is_hybrid and one.rows == "oversized",
        "hybrid model: eager batches",
    ),
    _round(
        "hybrid_padded_replays",
        lambda one: one.is_hybrid and one.is_padded,
        "padding: of a hybrid",
        channels="round.rows, graph.replay",
    ),
    _round("states_committed_none", _commits("none"), "states: none accepted", takes=_FORCED, effect=True),
    _round("states_committed_partial", _commits("partial"), "states: accepted in part", takes=_PARTLY, effect=True),
    _round("states_committed_all", _commits("all"), "states: all accepted", takes=_FORCED, effect=True),
    _round(
        "states_committed_without_drafts",
        lambda one: one.is_hybrid and not one.drafts,
        "states: no drafts",
        takes="draft counts",
        effect=True,
    ),
    _round("states_alternating", _is_alternating, "states: alternating", takes=_FORCED),
    _round(
        "snapshot_rounds",
        lambda one: one.request.run.layers == "snapshot" and one.drafts > 0,
        "hybrid model: snapshots",
    ),
    _round(
        "replays_folded",
        lambda one: one.is_hybrid and one.pending > 0,
        "hybrid model: replays folded",
        channels="commit.pending",
    ),
    _round("checkpoints_snapshot", _completes("snapshot"), "checkpoints: of snapshots"),
    _round("checkpoints_replay", _completes("replay"), "checkpoints: of replays"),
    _round("checkpoints_two_at_once", has(checkpoint="two and more"), "checkpoints: two at once"),
    _round("checkpoints_kept", has(checkpoint="kept"), "checkpoints: kept"),
)

FEATURE = Feature(
    name="hybrid",
    what="the probe target has gated delta net layers",
    has=is_hybrid,
    without=without_hybrid,
    rule="S-STATE-1",
    of_model=True,
    facts=_FACTS,
)
