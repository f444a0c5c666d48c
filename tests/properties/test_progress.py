"""Nobody waits without need (S-SCHED-11): runs in which somebody rests, or is left in line, judged by that contract."""

from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from draftproof.properties.contracts.registry import find
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.relations import Missing
from tests.properties.breaking import edited, later
from tests.properties.evidence import (
    ABORTED,
    BUDGETED,
    OF_ENGINE,
    PREEMPTED,
    STATIC,
    by_engine,
    evidence,
    with_aborts,
    with_observations,
)

PROGRESS = find("schedule.progress")


@pytest.mark.parametrize(
    "of", [evidence, *(partial(by_engine, one) for one in OF_ENGINE.values())], ids=["ideal", *OF_ENGINE]
)
def test_a_right_engine_lets_nobody_wait(of: Callable[[], Evidence]) -> None:
    assert PROGRESS.applies(of())
    assert PROGRESS.check(of()) == []


def test_a_chunk_that_is_put_off_is_noticed() -> None:
    of = evidence(scenario=STATIC)
    second = next(row for row in of.schedule.rows if row.chunk == 1)
    (found,) = PROGRESS.check(later(of, second.request, second.step))
    assert (found.request, found.relation) == (second.request, Missing())
    assert found.expected == f"a row in step {second.step}"


def test_a_round_that_is_put_off_is_noticed() -> None:
    of = by_engine(PREEMPTED)
    rows = [row for row in of.schedule.rows if row.round == 1]
    assert rows
    assert rows[0].phase
    found = PROGRESS.check(later(of, rows[0].request, rows[0].step))
    assert [one.expected for one in found] == [f"a row in step {rows[0].step}"]
    assert PREEMPTED.schedule.preemption


def test_who_is_first_in_line_and_fits_is_admitted() -> None:
    one_row = replace(STATIC, memory=replace(STATIC.memory, request_slots=1))
    of = evidence(scenario=one_row)
    begins = of.schedule.spans[1][0]
    assert begins > STATIC.requests[1].arrival
    assert PROGRESS.check(of) == []
    (found,) = PROGRESS.check(later(of, 1, 0))
    assert (found.request, found.expected, found.relation) == (1, f"admitted in step {begins}", Missing())


def test_of_a_budget_a_token_that_is_left_admits() -> None:
    of = by_engine(BUDGETED)
    late = max(range(len(of.scenario.requests)), key=lambda one: of.schedule.spans[one][0])
    begins = of.schedule.spans[late][0]
    assert of.plans.tokens_left(begins) >= 0
    found = PROGRESS.check(later(of, late, begins))
    assert [(one.request, one.expected) for one in found] == [(late, f"admitted in step {begins}")]


def test_who_cuts_prompts_as_it_likes_may_put_off() -> None:
    of = evidence(scenario=STATIC)
    limits = replace(of.limits, chunks="own")
    assert not PROGRESS.applies(Evidence(of.scenario, of.script, of.reference, of.subject, limits=limits))


def test_a_step_without_a_row_is_noticed() -> None:
    of = by_engine(ABORTED)
    kept = edited(of, "round.rows", lambda _, row: None if row.step == 3 else row, lambda key: not key.request)
    (found,) = PROGRESS.check(kept)
    assert found.relation == Missing()


def test_who_could_have_run_is_noticed() -> None:
    of = by_engine(with_aborts(STATIC, None, None, 4, None))
    without = (one for one in of.subject.observations if one.key.request != 3)
    last = replace(of.scenario.requests[3], abort_at=12)
    scenario = replace(of.scenario, requests=(*of.scenario.requests[:3], last))
    script = replace(
        of.script,
        requests=(*of.script.requests[:3], replace(of.script.requests[3], tokens=(), rounds=(), aborted=True)),
    )
    changed = with_observations(of, without)
    changed = type(of)(scenario, script, of.reference, changed.subject)
    (found,) = PROGRESS.check(changed)
    assert (found.request, found.relation) == (3, Missing())
