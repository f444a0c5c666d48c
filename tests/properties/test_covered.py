"""What a subject does not report cannot be demanded of it, and nothing else is let off."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest
from msgspec.structs import replace as changed

from draftproof.properties.coverage.counts import counts, total
from draftproof.properties.coverage.covered import (
    level_of,
    not_asked_with,
    not_covered,
    uncovered,
    unreachable,
    unreachable_by_draft,
)
from draftproof.properties.coverage.facts import FACTS
from draftproof.properties.coverage.shown import CHANNELS_THAT_SHOW_DRAFTS
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.forms import Form
from draftproof.properties.features import FEATURES
from draftproof.properties.values.channels import CHANNELS, TAPPED
from draftproof.properties.values.drafts import DRAFT_KINDS, DRAFT_KINDS_BY_NAME
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.trace import Trace
from tests.named.ran import ran_named

ALL = frozenset(CHANNELS)
READ = sorted(name for name in CHANNELS if name != "rank.collectives" and not_covered(NO_LIMITS, ALL - {name}))
_RUN = """
    aborted adaptive_rising by_batch dflash_block eagle_padded ends disaggregated hybrid_replay hybrid_snapshot images
    mixed_eagle mtp_unchained ngram_matches overlapped_stop preempted_hybrid prefix_cached prompt_logprobs tree_sampled
    windowed budgeted
"""
_BY_OTHERS = {
    # It is told by the size that a batch ran at, too.
    "shrink_below_captured_size",
    # The script says what came of drafts.
    "own_accepted",
}


@cache
def runs() -> tuple[Evidence, ...]:
    return tuple(ran_named(name) for name in _RUN.split())


def without(trace: Trace | None, channels: frozenset[str]) -> Trace | None:
    if trace is None:
        return None
    kept = tuple(one for one in trace.observations if one.channel not in channels)
    return Trace(trace.subject, trace.channels - channels, kept)


def counted(channels: frozenset[str] = frozenset()) -> Mapping[str, int]:
    return total(
        counts(replace(one, subject=without(one.subject, channels), varied=without(one.varied, channels)))
        for one in runs()
    )


@pytest.mark.parametrize("channel", READ)
def test_without_a_channel_nothing_is_counted_of_what_is_read_from_it(channel: str) -> None:
    hidden = {channel, "round.drafts"} if channel == "accept.correct_len" else {channel}
    full, got, listed = counted(), counted(frozenset(hidden)), not_covered(NO_LIMITS, ALL - hidden)
    gone = {name for name in full if full[name] and not got[name]}
    assert gone <= listed
    assert {name for name in listed if full[name]} - gone <= _BY_OTHERS


def test_no_count_is_read_from_any_other_channel() -> None:
    # What a subject says that it served decides what its cache keeps, and so which pages it evicts.
    hidden = ALL - frozenset(READ) - {"round.drafts", "round.cached"}
    assert counted(hidden - CHANNELS_THAT_SHOW_DRAFTS) == counted()


def test_whoever_shows_everything_is_let_off_nothing() -> None:
    assert uncovered(NO_LIMITS, ALL) == []
    assert uncovered(NO_LIMITS, ALL - TAPPED) == []


def test_every_limit_says_why() -> None:
    tight = Limits(
        steering="none", arrivals="serial", max_drafts=1, chunks="own", unchained=False, variants=(), features=()
    )
    reasons = [one.because for one in uncovered(tight, ALL)]
    assert len(reasons) == len(set(reasons))
    assert "the script cannot force its drafts" in reasons
    assert {"it has no variant alone", "its scenarios have no trees"} <= set(reasons)
    assert {"accept_partial", "batch_grows", "step_switches_up", "chunked_prefills"} <= not_covered(tight, ALL)


@pytest.mark.parametrize("feature", FEATURES, ids=lambda one: one.name)
def test_a_feature_that_a_subject_lacks_is_not_demanded(feature) -> None:
    others = tuple(one.name for one in FEATURES if one is not feature)
    lacking = not_covered(changed(NO_LIMITS, features=others), ALL)
    own = {fact.name for fact in feature.facts}
    # Models are what they are: no subject lacks what is chosen with one.
    assert not lacking if feature.of_model else own <= lacking


def test_of_alternatives_one_is_enough() -> None:
    for features in (("eos",), ("stop-sequences",)):
        assert "stops_before_budget_in_run" not in not_covered(changed(NO_LIMITS, features=features), ALL)
    assert "stops_before_budget_in_run" in not_covered(changed(NO_LIMITS, features=("trees",)), ALL)


def test_selected_scenarios_are_not_asked_for_other_features() -> None:
    others = not_asked_with(("trees", "sampling"))
    assert {"tree_states_replay", "prefix_hits", "drafts_drawn", "variant_taps_off", "hybrid_scenarios"} <= others
    assert not {"tree_rounds", "sampled_tree_residuals", "sampled_accepted", "accept_partial"} & others
    assert "admitted_before_others" in not_asked_with(("data-parallel",))


@pytest.mark.parametrize("kind", DRAFT_KINDS, ids=lambda one: one.name)
def test_what_a_draft_must_reach_it_can(kind) -> None:
    never = unreachable_by_draft(Form(kind, 2), real=False)
    assert not never & set(kind.minimum)
    assert ("blocks" in never) == (kind.proposes != "block")
    assert ("tree_rounds" in never) == (not kind.trees)


def test_a_real_model_is_what_it_is() -> None:
    one, three = (unreachable_by_draft(Form(DRAFT_KINDS_BY_NAME["mtp"], layers), real=True) for layers in (1, 3))
    assert {"accept_partial", "layers_unchained", "taps_off_long_proposals"} <= one
    assert "chains_of_one" not in one
    assert not {"accept_partial", "taps_off_long_proposals"} & three
    assert "chains_of_one" in three
    assert {fact.name for fact in FACTS if "disaggregation" in fact.takes} <= one
    assert "tree_rounds" in unreachable_by_draft(Form(DRAFT_KINDS_BY_NAME["ngram"], 1), real=True)
    assert "tree_rounds" not in unreachable_by_draft(Form(DRAFT_KINDS_BY_NAME["eagle"], 1), real=True)


def test_probes_have_states_where_they_are_generated() -> None:
    assert "finals" not in unreachable(runs()[0])


def test_levels() -> None:
    shown = {
        "text": {"accept.emitted"},
        "counters": {"accept.emitted", "accept.correct_len"},
        "host": {"accept.emitted", "propose.tokens"},
        "tensors": {"accept.emitted", "commit.kv"},
        "whole": ALL,
    }
    assert {level: level_of(frozenset(channels)) for level, channels in shown.items()} == {one: one for one in shown}
    assert level_of(ALL, frozenset({"verify.choice"})) == "tensors"


def test_what_takes_two_drafts_is_not_asked_of_one() -> None:
    one = not_covered(changed(NO_LIMITS, max_drafts=1), ALL)
    assert {"accept_partial", "matches_after_partial", "matches_of_fewer", "states_committed_partial"} <= one
    assert not one & {"matches", "no_matches", "accept_all", "accept_none"}
