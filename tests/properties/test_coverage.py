"""Facts say what a run was; each is asked for; counts, shares and bins are views of them."""

import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as put

from draftproof.harness import judge_log
from draftproof.properties import judge
from draftproof.properties.contracts.registry import ALL
from draftproof.properties.coverage.bins import bins, holes, name_of, split, universe
from draftproof.properties.coverage.counts import came_up, counts, total
from draftproof.properties.coverage.effects import acts
from draftproof.properties.coverage.fact import has, one_of, within, words
from draftproof.properties.coverage.facts import EFFECTS, FACT_NAMES, FACTS, FACTS_BY_NAME, GROUPS, SHOWN
from draftproof.properties.coverage.shares import PATTERNS
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.features import FEATURES, features_of
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.drafts import ALGORITHMS, DRAFT_KINDS, algorithm
from draftproof.properties.values.sampling import Sampling
from tests.named import named, names
from tests.named.ran import ran_named
from tests.properties.evidence import ADAPTIVE, NGRAM, OF_DRAFTS, STATIC, evidence, with_observations

_ROOT = Path(judge.__file__).parents[1]
_TOLD = ("own_accepted", "own_rejected", "scenarios_shown", "texts_shown", "drafts_seen")
"""What `check` says of drafts, and of what was seen at all (shown.py)."""


def test_every_fact_is_asked_for() -> None:
    """By a contract, a draft, a check, its shares, its output, or to know whether a feature did anything."""
    asked = {name for contract in ALL for name in contract.minimum} | {
        name for kind in DRAFT_KINDS for name in kind.minimum
    }
    asked |= {*judge.COMMON, *judge.WORK, *judge.REAL, *judge.TIES, *judge_log._SHOWN, *_TOLD}
    asked |= {name for one in PATTERNS for name in (one.asked, one.of, one.came) if name}
    asked |= {name for of_feature in EFFECTS.values() for name in of_feature} | {fact.name for fact in SHOWN}
    assert asked == set(FACT_NAMES)


def test_facts_are_named_and_shown_once() -> None:
    assert [name for name, times in Counter(FACT_NAMES).items() if times > 1] == []
    assert [shown for shown, times in Counter(fact.shown for fact in SHOWN).items() if times > 1] == []
    assert all(fact.group and fact.words for fact in SHOWN)
    assert all(re.fullmatch(r"\w+", name) for name in FACT_NAMES)


def test_facts_name_channels_that_there_are() -> None:
    channels = {name for fact in FACTS for alternatives in words(fact.channels) for name in alternatives}
    assert channels <= set(CHANNELS)


def test_facts_without_a_reader_are_noted_by_one() -> None:
    """Their names stand in what reads evidence, or in the reference, which alone can tell."""
    readers = (*_ROOT.glob("properties/coverage/read_*.py"), *_ROOT.glob("properties/evidence/*.py"))
    sources = "".join(path.read_text() for path in (*readers, *_ROOT.glob("reference/**/*.py")))
    assert [fact.name for fact in FACTS if fact.read is None and f'"{fact.name}"' not in sources] == []


def test_every_feature_has_an_effect() -> None:
    assert [name for name, facts in EFFECTS.items() if not facts] == []


@pytest.mark.parametrize("name", names())
def test_features_of_named_scenarios_act_and_hit_bins_that_there_are(name: str) -> None:
    scenario, counted = named(name), counts(ran_named(name))
    draft = algorithm(scenario.draft)
    assert bins(draft, counted) <= set(universe([draft]))
    others = {one.name for one in FEATURES} - set(features_of(scenario))
    assert [other for other in others if acts(other, counted)] == []
    assert counted["scenarios"] == counted["scenarios_shown"] == 1


def test_what_is_of_a_field_is_one_line() -> None:
    """A fact for each value, or for each range of a number: in one sample only one of them holds."""
    of_values = one_of("group", "round", "page", ("at", "to another page"))
    assert [(one.name, one.shown) for one in of_values] == [
        ("page_at", "group: at"),
        ("page_to_another_page", "group: to another page"),
    ]
    of_ranges = within("length", "request", "length", (1, 2, 4))
    assert [one.name for one in of_ranges] == ["length_1", "length_2_to_3", "length_4_and_more"]

    class Sample:
        page, length = "at", 3

    assert [one.count(Sample()) for one in (*of_values, *of_ranges)] == [1, 0, 0, 1, 0]
    assert has(page="at", length=3)(Sample())
    assert not has(page="at", length=2)(Sample())


# STATIC by hand: pages of 3, chunks of 4, one captured size of 2; n and K of its rounds are
# 7/3 9/2 12/2 13/0 14/0 | 5/3 9/3 10/0 11/3 14/1 | 4/2 7/1 | 2/2 5/1. The first two requests run together, then the
# third, which waited for pages, by itself; the fourth is prefilled beside it.
_COUNTED_BY_HAND = {
    "rounds": 18,
    "decode_rounds": 14,
    "rounds_with_drafts": 11,
    "rounds_without_drafts": 3,
    "levels_1": 3,
    "levels_2": 4,
    "levels_3": 4,
    "levels_4": 0,
    "accept_partial": 2,
    "page_crossings": 8,
    "page_crossings_of_several": 0,
    "page_every": 0,
    "page_at": 3,
    "page_after": 5,
    "page_before": 6,
    "page_inside": 0,
    "page_size_3": 1,
    "chunked_prefills": 2,
    "chunks_one": 2,
    "chunks_tail_of_one": 1,
    "chunks_short_tail": 1,
    "draft_steps": 12,
    "second_draft_steps": 4,
    "checkpoints_replay": 0,
    "states_committed_partial": 2,
    "states_committed_without_drafts": 3,
    "adaptive_scenarios": 0,
    "variant_taps_off": 0,
    "blocks": 0,
    "matches": 0,
    "limits_hit": 4,
    "end_budget": 4,
    "end_stop_in_run": 0,
    "stops_in_accepted_run": 0,
    "num_rows_3": 0,
    "runs_cut_by_max_len": 0,
}


@pytest.mark.parametrize("name", _COUNTED_BY_HAND)
def test_facts_are_read_by_hand(name: str) -> None:
    assert counts(evidence(scenario=STATIC))[name] == _COUNTED_BY_HAND[name]


def test_rounds_that_are_not_reported_are_not_counted() -> None:
    of = evidence(scenario=STATIC)
    full = counts(of)
    less = counts(
        with_observations(of, (one for one in of.subject.observations if one.channel != "accept.correct_len"))
    )
    assert full["accept_partial"]
    assert not less["decode_rounds"] + less["accept_partial"] + less["page_crossings"] + less["levels_3"]
    assert less["rounds"] == len(STATIC.requests)
    first = next(one for one in of.subject.observations if one.channel == "accept.correct_len")
    one_less = counts(with_observations(of, (one for one in of.subject.observations if one is not first)))
    assert one_less["decode_rounds"] == full["decode_rounds"] - 1


@pytest.mark.parametrize(
    ("channel", "lost"),
    [
        ("round.rows", ("mixed_draft_counts", "prefill_beside_decode")),
        ("round.state", ("state_slot_reuses", "states_started")),
        ("graph.replay", ("graph_replays", "padded_replays", "captures")),
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


@pytest.mark.parametrize("name", OF_DRAFTS)
def test_a_subject_that_keeps_something_to_itself_is_no_error(name: str) -> None:
    of = evidence(scenario=OF_DRAFTS[name])
    for channel in sorted({one.channel for one in of.subject.observations}):
        less = with_observations(of, (one for one in of.subject.observations if one.channel != channel))
        assert set(counts(less)) == set(FACT_NAMES)


def test_a_text_that_the_schedule_decides_is_not_settled() -> None:
    """Its tokens hang on its rounds: a list of such texts alone must not be enough for `output.lossless`."""
    drawn = Sampling(temperature=2.0, seed=5)
    for sampling, are_settled in ((None, True), (drawn, False)):
        requests = tuple(
            put(one, sampling=sampling, rounds=tuple(put(plan, num_correct=-1) for plan in one.rounds))
            for one in ADAPTIVE.requests
        )
        counted = counts(evidence(scenario=put(ADAPTIVE, requests=requests)))
        assert counted["tokens_emitted"] > 0
        assert counted["settled_tokens"] == counted["tokens_emitted"] * are_settled


def test_a_variant_that_changes_nothing_is_none() -> None:
    of = evidence("other_memory", STATIC)
    assert counts(of)["variant_other_memory"] == 1
    same = counts(replace(of, varied=of.subject))
    assert not any(count for name, count in same.items() if name.startswith("variant_"))


def test_ranks_are_one_scenario_and_their_work_is_added_up() -> None:
    of = ran_named("ranks_data")
    each, counted = [counts(one) for one in of.ranks], counts(of)
    assert counted["scenarios"] == 1
    assert counted["decode_rounds"] == sum(one["decode_rounds"] for one in each)
    assert all(one["decode_rounds"] for one in each)


def test_scenarios_are_counted_and_not_what_happened_in_them() -> None:
    shares = came_up([{"steps_after_none": 5}, {"step_switches_up": 1, "steps_after_none": 2}, {}])
    assert shares["adaptive steps"] | {"steps up": 1, "and back": 2} == shares["adaptive steps"]
    assert sum(sum(named.values()) for named in shares.values()) == 3
    assert {(group, name) for group, named in shares.items() for name in named} == {
        (fact.group, fact.words) for fact in SHOWN
    }
    assert list(shares) == list(GROUPS)
    assert not any(any(named.values()) for named in came_up([]).values())


def test_totals_have_every_name() -> None:
    assert total([]) == dict.fromkeys(FACT_NAMES, 0)
    assert total([{"scenarios": 1, "ties": 2}, {"scenarios": 1}])["scenarios"] == 2


def test_bins_are_facts_of_drafts() -> None:
    assert bins("eagle", {"accept_all": 7, "accept_none": 0, "scenarios": 1}) == {"eagle: accept_all"}
    every = universe(ALGORITHMS)
    assert len(every) == len(set(every))
    for name in every:
        assert name_of(*split(name)) == name
    assert {name for draft in ALGORITHMS for name in universe([draft])} == set(every)
    assert universe(["eagle", "mtp"]) == universe(["mtp", "eagle"])


def test_what_cannot_be_is_no_hole() -> None:
    every = set(universe(ALGORITHMS))
    assert {"dflash: blocks_cut", "ngram: matches", "eagle: drafts_drawn"} <= every
    assert not {"eagle: blocks_cut", "mtp: matches", "ngram: tensor_drafts_cut", "ngram: window_drafts"} & every
    assert not {"mtp: tree_rounds", "ngram: drafts_drawn", "mtp: beams", "eagle: matches_branched"} & every
    assert "eagle: disaggregated_requests" not in universe(["eagle"], {"disaggregated_requests"})


def test_holes_are_what_was_not_seen() -> None:
    every = universe(["eagle"])
    assert holes((), ["eagle"]) == every
    assert holes(set(every), ["eagle"]) == ()
    assert holes(set(every) - {every[7]}, ["eagle"]) == (every[7],)


@pytest.mark.parametrize("name", ["", "eagle", "eagle: nothing", "medusa: accept_all", "eagle: scenarios"])
def test_what_is_no_bin_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"invalid bin .*: expected <draft>: <fact>"):
        split(name)


@pytest.mark.parametrize("drafts", [[], ["medusa"]])
def test_a_universe_is_of_drafts(drafts: list[str]) -> None:
    message = f"invalid drafts {drafts}: expected some of {', '.join(ALGORITHMS)}"
    with pytest.raises(ValueError, match=re.escape(message)):
        universe(drafts)  # type: ignore[arg-type]


def test_a_fact_of_a_feature_takes_it_and_what_it_adds_to() -> None:
    assert words(FACTS_BY_NAME["drafts_drawn"].takes) == (("drawn-drafts",), ("sampling",))
    assert words(FACTS_BY_NAME["tree_states_replay"].takes) == (("trees",), ("hybrid",))
    assert words("one|other, third") == (("one", "other"), ("third",))
    assert words("") == ()


def test_counts_take_little_time() -> None:
    of = [evidence(scenario=scenario) for scenario in (STATIC, ADAPTIVE, NGRAM)]
    best = min(_seconds(one) for one in of for _ in range(5))
    assert best < 0.02


def _seconds(of: Evidence) -> float:
    start = time.process_time()
    counts(of)
    return time.process_time() - start
