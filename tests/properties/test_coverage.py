"""Coverage says what a run was, misses no value of it, and is told of bins that were declared impossible."""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import replace
from typing import NamedTuple

import msgspec
import pytest

from draftproof.fuzz.campaign.guide import Guide
from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.coverage import CROSSES, POINTS, bins, holes, impossible, split, universe
from draftproof.properties.coverage.counts import NAMES, counts
from draftproof.properties.coverage.impossible import RULES, Rule, reason
from draftproof.properties.coverage.points import name_of
from draftproof.properties.coverage.read_handovers import OF_HANDOVERS
from draftproof.properties.coverage.read_mixed import OF_MIXED
from draftproof.properties.coverage.read_overlap import OF_OVERLAP
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.rank_counts import OF_RANKS, OF_TENSOR_RANKS
from draftproof.properties.strategies.aborts import without_aborts
from draftproof.properties.strategies.overlap import without_overlap
from draftproof.properties.values.drafts import ALGORITHMS, algorithm
from tests.drawn import generate
from tests.properties.evidence import ADAPTIVE, NGRAM, OF_DRAFTS, STATIC, evidence, with_observations
from tests.properties.ideal import IdealSubject

PLAIN = 75
WRONG = (
    Rule("partial accepts are never padded", {"accept": ("partial",), "rows": ("padded",)}),
    Rule("no request waits", {"waited": ("yes",)}),
    Rule("nothing is folded across pages", {"layers": ("replay",), "crossing": ("one",)}),
    Rule("chains never switch", {"draft": ("mtp",), "switch": ("to none",)}),
)


class Ran(NamedTuple):
    """What one scenario covered, and what was counted of it."""

    draft: str
    bins: frozenset[str]
    counts: dict[str, int]


@pytest.fixture(scope="module")
def ran() -> list[Ran]:
    """As many scenarios that aim at nothing as such as aim at what those have not covered."""
    subject = IdealSubject()
    done = [_run(subject, scenario) for scenario in generate(19, PLAIN, ALGORITHMS)]
    guide, seen = Guide(12, ALGORITHMS), {name: 1 for one in done for name in one.bins}
    blocks = (guide.block(number, seen, ()) for number in itertools.count())
    aimed = (one.scenario for block in blocks for one in block if one.origin.startswith("aimed"))
    return done + [_run(subject, scenario) for scenario in itertools.islice(aimed, PLAIN)]


def _run(subject: IdealSubject, scenario) -> Ran:
    """Run it with nobody aborted, and no step planned before its time: no step of the ideal subject could."""
    of = lockstep(subject, without_overlap(without_aborts(scenario)))
    return Ran(algorithm(scenario.draft), bins(of), counts(of))


def test_no_impossible_bin_is_hit_and_every_bin_is_known(ran: list[Ran]) -> None:
    for one in ran:
        assert [name for name in one.bins if impossible(name)] == []
        assert one.bins <= set(universe([one.draft]))
    assert len(ran) == 2 * PLAIN


def test_scenarios_cover_most_of_it(ran: list[Ran]) -> None:
    seen = frozenset().union(*(one.bins for one in ran))
    # Its launches are of one kind, and its host waits.
    missing = [name for name in holes(seen, ALGORITHMS) if not split(name)[1].keys() & {"launch", "delay"}]
    assert len(missing) < 0.15 * len(universe(ALGORITHMS))
    single = {name for name in missing if len(split(name)[1]) == 1 and split(name)[1].keys() - _UNSEEN}
    assert single <= _SELDOM


def test_every_count_occurs_and_every_count_can_be_zero(ran: list[Ran]) -> None:
    """Together the scenarios reach everything but what a few wide ones alone have; none reaches it all."""
    never = {name for name in NAMES if not any(one.counts[name] for one in ran)}
    always = {name for name in NAMES if all(one.counts[name] for one in ran)}
    assert never <= _NEVER
    assert always <= _ALWAYS


# Probes have no ties, and the ideal subject has pages for all requests, so that none gives way.
_NEVER = {"ties", "token_ties", "preemptions", "resumed_in_chunks", "preemptions_of_hybrids"}
_NEVER |= {"prefix_hits_after_preemption", "preempted_again", "resumed_in_first_round", "variant_alone_of_resumed"}
_NEVER |= {"sequences_across_resume"}
# Nor is anybody aborted.
_NEVER |= {"aborted_waiting", "aborted_in_prefill", "aborted_in_decode", "aborted_preempted"}
_NEVER |= {"aborted_before_others", "aborted_on_served_pages"}
# Seldom.
_NEVER |= {
    "prompt_logprobs_behind_prefix",
    "prefix_hits_on_running",
    "variant_alone_of_served",
    "checkpoints_copied_again",
}
# One engine serves all of them, and packs no launches.
_NEVER |= {
    *OF_RANKS,
    *OF_TENSOR_RANKS,
    *OF_MIXED,
    *OF_HANDOVERS,
    *OF_OVERLAP,
    "variant_unmixed",
    "variant_unoverlapped",
}
# Seldom, or of what gives way, which the ideal subject never does; its steps have no budget of tokens either.
_UNSEEN = {"taps", "copied", "preempted", "resumed in", "refilled", "attempt", "handover", "lockstep"}
_UNSEEN |= {"launch", "delay"}
_SELDOM = {
    "variant: variant=unoverlapped",
    "limit: limit=tokens",
    "topk: topk=5 and more",
    "sequence: sequence=from prompt",
}
_ALWAYS = {"scenarios", "scenarios_shown", "texts_shown", "requests", "engine_steps", "rounds", "tokens_emitted"}
# Seldom do all requests end with the token of their prompts, or hang all texts on the schedule.
_ALWAYS |= {"decode_rounds", "verify_rows", "settled_tokens"}


@pytest.mark.parametrize("rule", WRONG, ids=lambda rule: rule.because)
def test_a_wrong_rule_is_noticed(ran: list[Ran], rule: Rule) -> None:
    """Where a cross has its points; a rule of two points that no cross has together excludes nothing."""
    seen = frozenset().union(*(one.bins for one in ran))
    hit = [name for name in seen if reason(split(name)[1], (*RULES, rule)) == rule.because]
    crossed = any(rule.where.keys() <= set(points) for points in CROSSES.values())
    assert bool(hit) == crossed


def test_an_impossible_bin_that_is_hit_is_reported() -> None:
    """A round of which nothing was accepted, and which committed three tokens."""
    of = evidence(scenario=STATIC)
    assert not any(map(impossible, bins(of)))
    first = of.script.requests[0]
    none = msgspec.structs.replace(first.rounds[0], correct_len=0, emitted=(1, 2, 3))
    first = msgspec.structs.replace(first, rounds=(none, *first.rounds[1:]))
    wrong = replace(of, script=msgspec.structs.replace(of.script, requests=(first, *of.script.requests[1:])))
    hit = [name for name in bins(wrong) if impossible(name)]
    assert hit == ["accept x checkpoint x layers: accept=none, checkpoint=two and more, layers=snapshot"]
    assert impossible(hit[0]) == "one token completes one multiple at most"


def test_steps_that_change_without_a_controller_are_impossible_and_reported() -> None:
    of = evidence(scenario=ADAPTIVE)
    assert "control x switch: control=adaptive and draft batch, switch=up" in bins(of)
    without = msgspec.structs.replace(ADAPTIVE, adaptive=None)
    hit = {name for name in bins(replace(of, scenario=without)) if impossible(name)}
    assert "control x switch: control=draft batch, switch=up" in hit


def test_every_rule_excludes_something_and_says_why() -> None:
    every = [
        dict(zip(points, values, strict=True))
        for points in CROSSES.values()
        for values in itertools.product(*(POINTS[point] for point in points))
    ]
    for rule in RULES:
        assert rule.because
        assert set(rule.where) <= set(POINTS)
        assert all(set(values) <= set(POINTS[point]) for point, values in rule.where.items())
        assert any(rule.excludes(values) for values in every), rule.because


def test_names_are_unique_and_say_what_they_are_of() -> None:
    names = universe(ALGORITHMS)
    assert len(names) == len(set(names))
    for name in names:
        cross, values = split(name)
        assert name_of(cross, tuple(values.values())) == name
        assert tuple(values) == CROSSES[cross]
        assert impossible(name) == ""
    order = {cross: place for place, cross in enumerate(CROSSES)}
    assert [order[split(name)[0]] for name in names] == sorted(order[split(name)[0]] for name in names)
    assert impossible("accept x K: accept=partial, K=1") == "one draft is right or wrong, never in part"


@pytest.mark.parametrize(
    "name", ["", "accept", "accept: accept=most", "accept: K=1", "accept x K: accept=none", "nothing: K=1"]
)
def test_what_is_no_bin_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"invalid bin .*: expected <cross>"):
        split(name)


def test_the_universe_of_a_draft_is_its_own() -> None:
    every = set(universe(ALGORITHMS))
    for name in ALGORITHMS:
        own = universe([name])
        assert set(own) < every
        assert all(split(one)[1].get("draft", name) == name for one in own)
    assert "match: match=fewer" not in universe(["mtp", "eagle"])
    assert "draft x limit: draft=eagle, limit=found" not in every
    assert universe(["eagle", "mtp"]) == universe(["mtp", "eagle"])
    for wrong in ([], ["medusa"]):
        message = f"invalid drafts {wrong}: expected some of {', '.join(ALGORITHMS)}"
        with pytest.raises(ValueError, match=re.escape(message)):
            universe(wrong)


def test_holes_are_what_was_not_seen() -> None:
    names = universe(["eagle"])
    assert holes((), ["eagle"]) == names
    assert holes(set(names), ["eagle"]) == ()
    assert holes(set(names) - {names[7]}, ["eagle"]) == (names[7],)


# STATIC by hand: pages of 3, chunks of 4, one captured size of 2; n and K of its rounds are
# 7/3 9/2 12/2 13/0 14/0 | 5/3 9/3 10/0 11/3 14/1 | 4/2 7/1 | 2/2 5/1. The first two requests run together, then the
# third, which waited for pages, by itself; the fourth is prefilled beside it.
_BY_HAND = {
    "K x page": {
        ("3", "after"),
        ("2", "at"),
        ("0", "after"),
        ("0", "before"),
        ("3", "before"),
        ("3", "at"),
        ("1", "before"),
        ("2", "after"),
        ("1", "after"),
        ("2", "before"),
    },
    "crossing": {("none",), ("one",)},
    "mix": {("equal",), ("unequal",), ("zero among",), ("alone",)},
    "bucket": {("first",), ("same",), ("fewer rows",)},
    "switch": {("first",), ("same",)},
    "rows x batch": {("exact", "2"), ("padded", "1")},
    "beside": {("nothing",), ("prefill",)},
    "joined x chunks": {
        ("alone", "short tail"),
        ("alone", "tail of one"),
        ("alone", "one"),
        ("beside decode", "one"),
    },
    "waited": {("no",), ("yes",)},
    "limit": {("none",), ("budget",)},
    "cut": {("whole",)},
    "end": {("budget",)},
    "proposals": {("forced",), ("own",), ("none",)},
    "checkpoint": {("one",), ("two and more",), ("kept",)},
    "variant": {("none",)},
    "layers": {("snapshot",)},
    "start": {("other",)},
    "draft": {("eagle",)},
    "chain": set(),
    "block": set(),
    "match": set(),
}


# The last rounds of the requests, whose drafts are not steered by the lengths after them, are left out of the accepts.
_COUNTED_BY_HAND = {
    "requests": 4,
    "rounds": 18,
    "decode_rounds": 14,
    "verify_rows": 37,
    "rounds_with_drafts": 11,
    "rounds_without_drafts": 3,
    "accept_partial": 2,
    "drafts_after_none": 1,
    "page_crossings": 8,
    "contexts_at_page_boundary": 3,
    "chunked_prefills": 2,
    "draft_steps": 12,
    "second_draft_steps": 4,
    "checkpoints_replay": 0,
    "states_committed_partial": 2,
    "states_committed_without_drafts": 3,
    "adaptive_scenarios": 0,
    "eagle_scenarios": 1,
    "variant_taps_off": 0,
    "blocks": 0,
    "matches": 0,
    "limits_hit": 4,
    "stops_in_accepted_run": 0,
}


@pytest.mark.parametrize("name", _COUNTED_BY_HAND)
def test_counts_are_read_by_hand(name: str) -> None:
    assert counts(evidence(scenario=STATIC))[name] == _COUNTED_BY_HAND[name]


def test_rounds_that_are_not_reported_are_not_counted() -> None:
    of = evidence(scenario=STATIC)
    full = counts(of)
    less = counts(
        with_observations(of, (one for one in of.subject.observations if one.channel != "accept.correct_len"))
    )
    assert full["accept_partial"]
    assert not less["decode_rounds"] + less["accept_partial"] + less["page_crossings"] + less["verify_rows"]
    assert less["rounds"] == less["requests"]
    first = next(one for one in of.subject.observations if one.channel == "accept.correct_len")
    one_less = counts(with_observations(of, (one for one in of.subject.observations if one is not first)))
    assert one_less["decode_rounds"] == full["decode_rounds"] - 1


@pytest.mark.parametrize(
    ("channel", "lost"),
    [
        ("round.rows", ("engine_steps", "mixed_draft_counts", "prefill_beside_decode")),
        ("round.state", ("state_slot_reuses", "states_started")),
        ("graph.replay", ("graph_replays", "padded_replays", "captures", "verifies_at_width_4")),
        ("accept.emitted", ("tokens_emitted", "settled_tokens")),
        ("commit.final", ("finals",)),
    ],
)
def test_counts_of_what_a_subject_does_not_report_are_zero(channel: str, lost: tuple[str, ...]) -> None:
    of = evidence(scenario=STATIC)
    full = counts(of)
    less = counts(with_observations(of, (one for one in of.subject.observations if one.channel != channel)))
    assert all(full[name] for name in lost)
    assert not any(less[name] for name in lost)


def test_a_text_that_the_schedule_decides_is_not_settled() -> None:
    """Its tokens hang on its rounds: a list of such texts alone must not be enough for `output.lossless`."""
    drawn = generate(13, PLAIN, ALGORITHMS)
    scenario = next(one for one in drawn if one.dynamic and any(request.sampling for request in one.requests))
    sampling = next(request.sampling for request in scenario.requests if request.sampling)
    for texts, are_settled in ((None, True), (sampling, False)):
        requests = tuple(msgspec.structs.replace(one, sampling=texts) for one in scenario.requests)
        of = lockstep(IdealSubject(), msgspec.structs.replace(scenario, requests=requests))
        settled, emitted = (counts(of)[name] for name in ("settled_tokens", "tokens_emitted"))
        assert emitted > 0
        assert settled == emitted * are_settled


@pytest.mark.parametrize("cross", _BY_HAND)
def test_rounds_are_read_by_hand(cross: str) -> None:
    seen = {tuple(split(name)[1].values()) for name in bins(evidence(scenario=STATIC)) if split(name)[0] == cross}
    assert seen == _BY_HAND[cross]


@pytest.mark.parametrize("name", OF_DRAFTS)
def test_a_subject_that_keeps_something_to_itself_is_no_error(name: str) -> None:
    of = evidence(scenario=OF_DRAFTS[name])
    full = bins(of)
    for channel in sorted({one.channel for one in of.subject.observations}):
        less = with_observations(of, (one for one in of.subject.observations if one.channel != channel))
        assert bins(less) - full == frozenset() or channel in ("round.rows", "graph.replay", "round.table")


def test_what_does_not_show_is_in_no_bin() -> None:
    """A variant run in which nothing moved is none, and a graph that never ran is no replay."""
    of = evidence("pages_permuted", STATIC)
    assert "variant: variant=pages_permuted" in bins(of)
    same = replace(of, varied=of.subject)
    assert not any(name.startswith("variant:") for name in bins(same))
    still = [one for one in of.subject.observations if one.channel != "graph.replay"]
    assert not {"rows: rows=padded", "rows: rows=exact"} & bins(with_observations(of, still))


def test_bins_take_little_time() -> None:
    of = [evidence(scenario=scenario) for scenario in (STATIC, ADAPTIVE, NGRAM)]
    best = min(_seconds(one) for one in of for _ in range(5))
    assert best < 0.01


def _seconds(of: Evidence) -> float:
    fresh = replace(of)
    start = time.process_time()
    bins(fresh)
    return time.process_time() - start
