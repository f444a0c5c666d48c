"""What ranks agree on: of each number the largest, and what each of them brings to it."""

from dataclasses import fields

import pytest

from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.lockstep import IDLE, Lockstep, RankWork, StepWork
from draftproof.properties.evidence.rank_work import rank_work
from draftproof.properties.values.observed import Collective
from tests.properties.evidence import ADAPTIVE, STATIC, evidence, ranked

ONE = RankWork({1: StepWork(2, 7, 9, 1, 1, 1, 3, False), 2: StepWork(rows=3)}, last_step=2, collectives={})
OTHER = RankWork({1: StepWork(1, 8, 8, 2, 0, 4, 4, True)}, last_step=5, collectives={})


def test_the_largest_of_each_number_is_agreed() -> None:
    both = Lockstep((ONE, OTHER))
    assert (both.rows(1, 0), both.rows(1, 1), both.tokens(1), both.entries(1), both.going_on(1)) == (2, 2, 8, 9, 1)
    assert (both.planned_width(1), both.width(1), both.drafts(1)) == (4, 4, True)
    assert (both.rows(2, 1), both.going_on(2), both.width(2), both.drafts(2)) == (3, 0, 1, False)
    assert both.last_step == 5


def test_a_batch_without_any_draft_in_the_end_is_as_wide_as_one_token() -> None:
    assert Lockstep((ONE,)).planned_width(1) == 3
    assert Lockstep((ONE,)).width(1) == 1


def test_in_a_step_of_nobody_there_is_nothing() -> None:
    nothing = Lockstep((ONE, OTHER))
    assert (nothing.rows(9, 0), nothing.rows(9, 1), nothing.tokens(9), nothing.entries(9)) == (0, 0, 0, 0)
    assert (nothing.width(9), nothing.planned_width(9), nothing.drafts(9)) == (1, 1, False)
    assert Lockstep(()).last_step == -1
    assert StepWork() == IDLE


@pytest.mark.parametrize("scenario", [STATIC, ADAPTIVE], ids=["static", "adaptive"])
def test_the_work_of_a_rank_is_that_of_its_batches(scenario: object) -> None:
    of = evidence(scenario=scenario)  # type: ignore[arg-type]
    work = rank_work(of)
    for (step, phase), rows in of.schedule.batches.items():
        own = work.steps[step]
        assert len(rows) == (own.rows if phase else own.chunks)
        if phase:
            assert own.width == of.plans.width(step)
            assert own.planned_width >= own.width
            assert own.rows - own.going_on == len(of.schedule.ending(step, 1))
            assert own.drafts == any(of.form.entries(of.depth(row)) for row in rows)
        else:
            assert own.tokens == sum(row.count for row in rows)
            assert own.entries >= own.tokens
    assert {step for step, _ in of.schedule.batches} == set(work.steps)
    assert work.last_step == of.schedule.last_step
    assert work.collectives == of.subject.typed("rank.collectives", Collective)


def test_no_rank_holds_the_evidence_of_another() -> None:
    """The list of all is the one place where one piece of evidence contains others."""
    first, second = ranked(0, 0, 1, 1)
    assert first.lockstep is second.lockstep
    assert first.lockstep is not None
    assert all(isinstance(one, RankWork) for one in first.lockstep.ranks)
    assert [one.name for one in fields(Evidence) if "Evidence" in str(one.type)] == ["ranks"]
