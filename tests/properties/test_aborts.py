"""Aborts in every phase: what was emitted stays, all is back, and nobody else notices (S-SCHED-9)."""

import pytest
from msgspec.structs import replace

from draftproof.fuzz.shrinking.of_requests import at_once, fewer_aborts
from draftproof.fuzz.shrinking.size import size
from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.contracts.registry import find
from draftproof.properties.coverage.counts import counts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.features import FEATURES_BY_NAME
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.validate import validate
from draftproof.properties.values.observed import CachedPages, PoolReport
from draftproof.properties.values.relations import Surplus
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.trace import Key
from draftproof.reference.run import ReferenceSubject
from tests.properties.breaking import later
from tests.properties.evidence import (
    ABORTED,
    ABORTED_AGAIN,
    CACHED,
    NGRAM,
    PREEMPTED,
    STATIC,
    EngineSubject,
    by_engine,
    with_aborts,
)

CONTRACT = find("schedule.aborted")


def _counted(of: Evidence) -> list[int]:
    """By the phase of the request."""
    return [counts(of)[f"aborted_{when}"] for when in ("waiting", "in_prefill", "in_decode", "preempted")]


def test_every_phase_is_told_and_passes() -> None:
    assert _counted(by_engine(ABORTED)) == [1, 1, 1, 0]
    assert _counted(by_engine(ABORTED_AGAIN)) == [0, 1, 1, 1]
    assert judge(by_engine(ABORTED)).passed
    assert judge(by_engine(ABORTED_AGAIN)).passed


@pytest.mark.parametrize("scenario", [ABORTED, ABORTED_AGAIN])
def test_a_text_is_cut_and_no_other_changes(scenario: Scenario) -> None:
    texts, whole = (
        by_engine(scenario).subject.texts,
        lockstep(EngineSubject(), FEATURES_BY_NAME["aborts"].without(scenario)).subject.texts,
    )
    for index, request in enumerate(scenario.requests):
        own = texts.get(index, ())
        assert own == whole[index][: len(own)]
        assert (len(own) < len(whole[index])) == (request.abort_at is not None)


def test_all_is_back_when_it_was_aborted() -> None:
    of = by_engine(ABORTED)
    reports = of.subject.typed("pool.owners", PoolReport)
    for index, request in enumerate(ABORTED.requests):
        if request.abort_at is not None:
            after = [report for key, report in reports.items() if key.round >= request.abort_at]
            assert after
            assert not any(owner.request == index for report in after for owner in report.owners)
    last = reports[max(reports)]
    assert (last.free_pages, last.owners) == (ABORTED.memory.pages, ())


def test_who_waits_behind_is_admitted_at_once() -> None:
    # Requests 0 and 1 have all rows and pages that there are but one, until one of them is aborted.
    few = replace(
        STATIC, memory=replace(STATIC.memory, request_slots=2), schedule=replace(STATIC.schedule, max_batch=2)
    )
    of = by_engine(with_aborts(few, 3, None, None, None))
    assert judge(of).passed
    assert of.schedule.spans[2][0] == 3


def test_who_waits_before_others_and_who_runs_on_served_pages_is_counted() -> None:
    one_row = replace(
        STATIC, memory=replace(STATIC.memory, request_slots=1), schedule=replace(STATIC.schedule, max_batch=1)
    )
    requests = tuple(replace(one, arrival=place) for place, one in enumerate(STATIC.requests))
    of = by_engine(with_aborts(replace(one_row, requests=requests), None, 6, None, None))
    assert judge(of).passed
    assert (counts(of)["aborted_waiting"], counts(of)["aborted_before_others"]) == (1, 1)
    last = by_engine(with_aborts(replace(one_row, requests=requests), None, None, None, 6))
    assert (counts(last)["aborted_waiting"], counts(last)["aborted_before_others"]) == (1, 0)
    first, second, *_ = CACHED.requests
    pair = (first, replace(second, prompt=first.prompt, arrival=first.arrival + 4))
    memory = replace(CACHED.memory, pages=60)
    for abort_at, count in ((6, 1), (None, 0)):
        served = by_engine(with_aborts(replace(CACHED, requests=pair, memory=memory), None, abort_at))
        assert judge(served).passed
        assert counts(served)["aborted_on_served_pages"] == count


def test_an_abort_behind_the_end_changes_nothing() -> None:
    late = by_engine(with_aborts(STATIC, 7, None, None, 300))
    assert not late.aborts
    assert judge(late).passed
    assert late.subject.texts == lockstep(EngineSubject(), STATIC).subject.texts


def test_a_step_may_be_of_nothing_but_an_abort() -> None:
    alone = replace(STATIC, requests=STATIC.requests[:1])
    of = by_engine(with_aborts(alone, 1))
    assert judge(of).passed
    assert not of.subject.texts
    assert of.schedule.last_step == 1
    assert max(row.step for row in of.schedule.rows) == 0
    assert _counted(of) == [0, 1, 0, 0]


def test_what_a_lookup_keeps_is_dropped() -> None:
    of = by_engine(with_aborts(NGRAM, 1, 4, 2, None))
    assert judge(of).passed
    assert sum(_counted(of)) == 3


def test_pages_of_one_that_decodes_are_kept_and_of_a_prefill_none() -> None:
    many = replace(CACHED, memory=replace(CACHED.memory, pages=40))
    for step, is_kept in ((1, False), (4, True)):
        of = by_engine(with_aborts(many, step, None, None, None))
        assert judge(of).passed
        pages = of.subject.typed("pool.cached", CachedPages)[Key(-1, step)]
        own = CACHED.requests[0].prompt
        assert any(one.tokens[: len(own)] == own for one in pages) == is_kept


def test_who_does_not_say_when_rounds_ran_is_judged_by_all_of_them() -> None:
    """An abort in the first step, too: the reference as a subject knows no steps."""
    first = replace(STATIC.requests[0], arrival=0, abort_at=0)
    of = lockstep(ReferenceSubject(), replace(STATIC, requests=(first, *STATIC.requests[1:])))
    assert of.subject.texts[0]
    assert judge(of).first is None


def test_rows_behind_an_abort_are_noticed() -> None:
    (found,) = CONTRACT.check(later(by_engine(ABORTED), 0, 3, 3))
    assert found.relation == Surplus()


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidScenarioError, match=r"requests\[2\]\.abort_at 0: expected at least .*arrival = 1"):
        with_aborts(STATIC, None, None, 0, None)
    with pytest.raises(
        InvalidScenarioError, match=r"requests that are all aborted or refused as they arrive: expected one"
    ):
        with_aborts(STATIC, 0, 0, 1, 9)


def test_shrinking_drops_them_and_moves_them_along() -> None:
    smaller = list(fewer_aborts(ABORTED.requests[0]))
    assert smaller[0].abort_at is None
    assert all(one.abort_at < 4 for one in smaller[1:] if one.abort_at is not None)
    later = replace(
        PREEMPTED, requests=tuple(replace(one, arrival=one.arrival + 2, abort_at=30) for one in PREEMPTED.requests)
    )
    assert {one.abort_at for one in at_once(validate(later)).requests} == {28}
    assert size(FEATURES_BY_NAME["aborts"].without(ABORTED)) < size(ABORTED)
