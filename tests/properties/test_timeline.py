"""The timeline of a finding: every round and phase, where both sides agree, and where they part."""

from dataclasses import replace

import msgspec
import pytest

from draftproof.properties.diagnosis.timeline import LONGEST_VALUE, Timeline, timeline
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.judge import judge
from draftproof.properties.values.channels import CHANNELS, PHASES
from draftproof.properties.values.relations import OffBy
from draftproof.properties.values.trace import Observation, Trace
from draftproof.properties.values.verdict import Divergence
from tests.properties.evidence import evidence, evidence_of, with_observations


def changed(of: Evidence, channel: str, at: int = 0) -> tuple[Evidence, Observation]:
    """The same with one value of a channel changed, and what it was."""
    mine = [one for one in of.subject.observations if one.channel == channel]
    old = sorted(mine, key=lambda one: one.order)[at]
    new = old._replace(value=_other(old.value))
    return with_observations(of, [new if one is old else one for one in of.subject.observations]), old


def _other(value):
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    if isinstance(value, tuple):
        return (value[0] + 1, *value[1:]) if value else (1,)
    return value + 1


def found(of: Evidence) -> Divergence:
    first = judge(of).first
    assert first is not None
    return first


def drawn(of: Evidence) -> Timeline:
    return timeline(of, found(of))


def invented(**fields) -> Divergence:
    """A divergence that a contract could report, wherever."""
    base = {"contract": "x", "channel": "verify.ids", "phase": "verify", "request": 0, "round": 1, "step": -1}
    rest = {"layer": -1, "row": 0, "index": -1, "expected": "1", "got": "2", "relation": OffBy(1)}
    return Divergence(**{**base, **rest, **fields})


def test_a_run_without_a_difference_is_the_same_everywhere_but_where_one_is_claimed():
    marks = timeline(evidence(), invented()).marks
    wrong = [mark for mark in marks if mark.different]
    assert [(mark.request, mark.round, mark.phase) for mark in wrong] == [(0, 1, "verify")]
    assert (wrong[0].channel, wrong[0].place, wrong[0].expected, wrong[0].got) == ("verify.ids", "row 0", "1", "2")
    assert all(mark.same for mark in marks)


def test_every_round_and_phase_is_there_in_order_with_its_engine_steps():
    of = evidence()
    marks = timeline(of, invented()).marks
    order = [(mark.request, mark.round, PHASES.index(mark.phase)) for mark in marks]
    assert order == sorted(set(order))
    assert {mark.request for mark in marks} == {-1, 0, 1, 2, 3}
    for row in of.schedule.rows:
        mine = [mark for mark in marks if (mark.request, mark.round) == (row.request, row.round)]
        assert mine
        assert all(mark.step <= row.step <= mark.last_step for mark in mine)
    prefill = next(mark for mark in marks if (mark.request, mark.round) == (0, 0))
    assert (prefill.step, prefill.last_step) == (0, 1)


def test_the_counts_are_those_of_the_compared_channels():
    of = evidence()
    both = of.reference.channels & of.subject.channels
    total = sum(len(of.pair(channel)[0]) for channel in both)
    marks = timeline(of, invented()).marks
    assert sum(mark.same for mark in marks) == total


@pytest.mark.parametrize("channel", ["verify.ids", "draft.step.positions", "commit.length", "verify.hidden"])
def test_one_changed_value_is_one_difference_with_both_values(channel):
    of, old = changed(evidence_of(channel), channel)
    drawn_ = drawn(of)
    place = (old.key.request, old.key.round, CHANNELS[channel].phase)
    mark = next(mark for mark in drawn_.marks if (mark.request, mark.round, mark.phase) == place)
    assert mark.different == 1
    assert mark.channel == channel
    assert mark.expected
    assert mark.expected != mark.got
    assert mark.step >= 0


def test_another_cell_tells_its_own_first_difference():
    of, _ = changed(evidence(), "verify.ids")
    of, old = changed(of, "verify.ids", at=-1)
    drawn_ = timeline(of, found(of))
    last = [mark for mark in drawn_.marks if mark.different][-1]
    assert (last.request, last.round, last.expected) == (old.key.request, old.key.round, str(old.value))
    assert last.got == str(old.value + 1)
    assert last.place == f"row {old.key.row}"


def test_what_the_subject_lacks_is_missing_and_what_it_has_too_much_is_not():
    of = evidence()
    gone = [one for one in of.subject.observations if not (one.channel == "verify.ids" and one.key.request == 2)]
    wrong = [mark for mark in timeline(with_observations(of, gone), invented()).marks if mark.missing]
    assert {mark.request for mark in wrong} == {2}
    assert {mark.got for mark in wrong} == {"nothing"}
    more = Observation("verify.ids", of.subject.observations[0].key._replace(request=1, round=77, step=-1, row=0), 5)
    extra = timeline(with_observations(of, [*of.subject.observations, more]), invented()).marks
    late = next(mark for mark in extra if mark.round == 77)
    assert (late.different, late.missing, late.step, late.expected, late.got) == (1, 0, -1, "nothing", "5")


def test_a_channel_that_only_the_subject_has_is_marked_where_it_was_found_wrong():
    of, _ = changed(evidence(), "verify.slots", at=3)
    first = found(of)
    assert first.channel not in of.reference.channels
    mark = next(mark for mark in timeline(of, first).marks if mark.channel == first.channel)
    assert (mark.request, mark.round, mark.phase) == (first.request, first.round, first.phase)
    assert mark.different >= 1


def test_what_is_the_whole_engines_has_its_engine_step():
    first = invented(channel="pool.guards", phase="pool", request=-1, round=3, row=-1)
    mark = next(mark for mark in timeline(evidence(), first).marks if mark.phase == "pool")
    assert (mark.request, mark.step, mark.last_step, mark.place) == (-1, 3, 3, "")


def test_a_difference_in_the_related_run_is_drawn_from_that_run():
    of = evidence("other_memory")
    assert of.varied is not None
    moved, _ = changed(replace(of, subject=of.varied, varied=None), "verify.ids")
    drawn_ = drawn(replace(of, varied=moved.subject))
    assert drawn_.run == "run of variant other_memory"
    assert sum(mark.different for mark in drawn_.marks) == 1
    base, _ = changed(of, "verify.ids")
    assert drawn(base).run == "base run"


def test_a_variant_that_does_not_hold_compares_the_two_runs():
    of = evidence("other_memory")
    assert of.varied is not None
    slots, old = changed(replace(of, subject=of.varied, varied=None), "round.state")
    first = invented(
        contract="variant.other_memory",
        channel="round.state",
        phase="plan",
        request=old.key.request,
        round=old.key.round,
        row=-1,
    )
    drawn_ = timeline(replace(of, varied=slots.subject), first)
    assert drawn_.run == "base run, beside the run of variant other_memory"
    assert [mark.phase for mark in drawn_.marks if mark.different] == ["plan"]


def test_long_values_are_cut_and_all_of_it_is_json():
    of = evidence()
    long = tuple(range(200))
    seen = [one._replace(value=long) if one.channel == "accept.emitted" else one for one in of.subject.observations]
    drawn_ = timeline(with_observations(of, seen), invented())
    assert max(len(mark.got) for mark in drawn_.marks) == LONGEST_VALUE
    assert msgspec.json.decode(msgspec.json.encode(drawn_), type=Timeline) == drawn_


def test_a_subject_that_reports_little_has_a_timeline_of_that():
    of = evidence()
    few = Trace("few", frozenset({"accept.emitted"}), ())
    marks = timeline(replace(of, subject=few), invented()).marks
    assert {mark.phase for mark in marks} == {"accept", "verify"}
    assert all(mark.step == -1 for mark in marks)
    assert all(mark.missing for mark in marks if mark.phase == "accept")
