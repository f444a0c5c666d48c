"""What real bugs needed to show comes up in enough scenarios, and is counted in scenarios."""

from __future__ import annotations

from scipy.stats import binom

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.coverage.counts import NAMES, counts
from draftproof.properties.coverage.points import POINTS
from draftproof.properties.coverage.triggers import LEAST, TRIGGERS, came_up
from draftproof.properties.values.drafts import ALGORITHMS
from tests.drawn import generate

MANY = 240
ONE_OF_TWENTY = 0.05


def test_triggers_are_named_once_by_counts_that_exist() -> None:
    assert len({one[:2] for one in TRIGGERS}) == len(TRIGGERS)
    assert all(one.counts and set(one.counts) <= set(NAMES) for one in TRIGGERS)


def test_what_is_called_as_a_value_of_a_coverpoint_counts_the_same() -> None:
    """Both are printed, one below the other, in percent of scenarios."""
    values = {(point, value) for point, of_point in POINTS.items() for value in of_point}
    assert {one[:2] for one in TRIGGERS} & values == {("preempted", "again")}


def test_scenarios_are_counted_and_not_what_happened_in_them() -> None:
    shares = came_up([{"steps_after_none": 5}, {"drafts_after_batch_without": 1, "steps_after_none": 2}, {}])
    assert shares["adaptive"] == {"steps up": 0, "steps down": 0, "zero steps": 0, "and back": 2}
    assert {(group, name) for group, named in shares.items() for name in named} == {one[:2] for one in TRIGGERS}
    assert sum(sum(named.values()) for named in shares.values()) == 2


def test_nothing_ran_is_no_share() -> None:
    assert not any(any(named.values()) for named in came_up([]).values())


def test_no_trigger_is_rare() -> None:
    """Rare is what comes up as seldom as in one of twenty lists at most if its share were LEAST."""
    subject = EngineSubject()
    shares = came_up(counts(evidence(subject, scenario)) for scenario in generate(7, MANY, ALGORITHMS))
    each = [(group, name, share) for group, named in shares.items() for name, share in named.items()]
    rare = {(group, name): share for group, name, share in each if binom.cdf(share, MANY, LEAST / 100) < ONE_OF_TWENTY}
    assert rare == {}
