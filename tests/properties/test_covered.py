"""What a subject does not report cannot be demanded of it, and nothing else is let off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest

from draftproof.harness.lockstep import evidence
from draftproof.properties.coverage.counts import counts, total
from draftproof.properties.coverage.covered import level_of, not_covered, uncovered
from draftproof.properties.coverage.shown import OF_DRAFTS
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.strategies.ranks import without_ranks
from draftproof.properties.values.channels import CHANNELS, TAPPED
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.trace import Trace
from tests.drawn import generate
from tests.properties.ideal import IdealSubject

ALL = frozenset(CHANNELS)
READ = sorted(name for name in CHANNELS if not_covered(NO_LIMITS, ALL - {name}))


@cache
def runs() -> tuple[Evidence, ...]:
    return tuple(evidence(IdealSubject(), without_ranks(scenario)) for scenario in generate(5, 18, ALGORITHMS))


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
    full, got, listed = counted(), counted(frozenset({channel})), not_covered(NO_LIMITS, ALL - {channel})
    gone = {name for name in full if full[name] and not got[name]}
    assert gone <= listed
    assert {name for name in listed if full[name]} - gone <= {"shrink_below_captured_size"}


def test_no_count_is_read_from_any_other_channel() -> None:
    hidden = ALL - frozenset(READ)
    assert counted(hidden - OF_DRAFTS) == counted()
    # How many drafts are seen is told by any of several channels, most of which nothing else is read from.
    assert {**counted(hidden), "drafts_seen": 0} == {**counted(), "drafts_seen": 0}


def test_whoever_shows_everything_is_let_off_nothing() -> None:
    assert uncovered(NO_LIMITS, ALL) == []
    assert uncovered(NO_LIMITS, ALL - TAPPED) == []


def test_every_limit_says_why() -> None:
    tight = Limits(steering="none", arrivals="serial", max_drafts=1, controllers=False, chunks="own", variants=())
    reasons = [one.because for one in uncovered(tight, ALL)]
    assert len(reasons) == len(set(reasons)) == 8
    assert {"accept_partial", "batch_grows", "step_switches_up", "chunked_prefills"} <= not_covered(tight, ALL)


def test_levels() -> None:
    shown = {
        "text": {"accept.emitted"},
        "counters": {"accept.emitted", "accept.correct_len"},
        "host": {"accept.emitted", "propose.tokens"},
        "tensors": {"accept.emitted", "commit.kv"},
        "whole": ALL,
    }
    assert {level: level_of(frozenset(channels)) for level, channels in shown.items()} == {one: one for one in shown}


def test_what_takes_two_drafts_is_not_asked_of_one() -> None:
    one = not_covered(Limits(max_drafts=1), ALL)
    assert {"accept_partial", "matches_after_partial", "matches_of_fewer", "states_committed_partial"} <= one
    assert not one & {"matches", "no_matches", "accept_all", "accept_none"}
