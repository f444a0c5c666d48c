"""First come, first served among what fits: schedules made by hand, judged by `schedule.legal` alone."""

from dataclasses import replace

import msgspec
import pytest

from draftproof.harness.lockstep import evidence
from draftproof.properties.contracts.registry import find
from draftproof.properties.coverage.counts import counts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.validate import validate
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.observed import BatchRow
from draftproof.properties.values.relations import Missing, OutOfOrder
from draftproof.properties.values.scenario import Memory, Scenario, Schedule
from draftproof.properties.values.trace import Key
from tests.properties.breaking import edited
from tests.properties.evidence import STATIC, request
from tests.properties.ideal import IdealSubject

# One at a time; request 1 needs seven pages, the others two and three.
REQUESTS = (request(0, 3, 3, "0/0"), request(0, 18, 3, "0/0"), request(0, 3, 3, "0/0"), request(0, 3, 4, "0/0"))
QUEUE = validate(
    msgspec.structs.replace(
        STATIC,
        memory=Memory(page_size=4, pages=7, request_slots=4, max_len=30),
        schedule=Schedule(max_batch=2, chunk=20),
        requests=REQUESTS,
    )
)


def served(scenario: Scenario, order: tuple[int, ...]) -> Evidence:
    """A run that serves the requests one after the other, each in steps of its own."""
    of, step, steps = evidence(IdealSubject(), scenario), 0, {}
    rows = dict(of.subject.typed("round.rows", BatchRow))
    for one in order:
        for key in sorted(key for key in rows if key.request == one):
            steps[key], step = step, step + 1
    return edited(of, "round.rows", lambda key, row: msgspec.structs.replace(row, step=steps[key], place=0))


def with_steps(of: Evidence, steps: dict[Key, int]) -> Evidence:
    """The same run, its rows in these steps."""
    return edited(of, "round.rows", lambda key, row: msgspec.structs.replace(row, step=steps[key]))


def overtaken(of: Evidence) -> list[str]:
    """Who was admitted before whom, by the contract; nothing else is wrong."""
    found = find("schedule.legal").check(of)
    assert all(isinstance(one.relation, OutOfOrder) for one in found)
    return [f"{one.expected}, not {one.got}" for one in found]


@pytest.mark.parametrize(
    ("order", "wrong"),
    [
        ((0, 1, 2, 3), []),
        ((0, 1, 3, 2), ["request 2 first, not request 3"]),
        ((1, 0, 2, 3), ["request 0 first, not request 1"]),
        ((0, 2, 1, 3), ["request 1 first, not request 2"]),
        ((3, 2, 1, 0), ["request 0 first, not request 3"]),
    ],
)
def test_nobody_is_served_before_one_who_came_earlier_and_fits(order: tuple[int, ...], wrong: list[str]) -> None:
    assert overtaken(served(QUEUE, order)) == wrong


def test_whoever_does_not_fit_may_be_overtaken() -> None:
    """Request 1 needs all pages. While request 0 runs, request 2 fits beside it, and 1 does not."""
    of = served(QUEUE, (0, 2, 1, 3))
    rows = of.subject.typed("round.rows", BatchRow)
    last = max(row.step for key, row in rows.items() if key.request == 0)
    first = min(row.step for key, row in rows.items() if key.request == 2)
    # Nothing runs in the step that it leaves, so that all after it come a step sooner.
    beside = with_steps(of, {key: row.step - (row.step >= first) for key, row in rows.items()})
    assert first == last + 1
    assert beside.schedule.spans[2][0] == beside.schedule.spans[0][1]
    assert overtaken(beside) == []
    roomy = replace(
        beside,
        scenario=msgspec.structs.replace(QUEUE, memory=Memory(page_size=4, pages=14, request_slots=2, max_len=30)),
    )
    assert overtaken(roomy) == ["request 1 first, not request 2"]


@pytest.mark.parametrize(("since", "late"), [(0, 1), (0, 3), (4, 2)])
def test_no_step_rests_while_a_request_has_arrived(since: int, late: int) -> None:
    of = evidence(IdealSubject(), QUEUE)
    rows = of.subject.typed("round.rows", BatchRow)
    found = find("schedule.legal").check(
        with_steps(of, {key: row.step + late * (row.step >= since) for key, row in rows.items()})
    )
    assert [(one.expected, one.relation) for one in found[:1]] == [(f"a batch in step {since}", Missing())]


@pytest.mark.parametrize(("late", "rests"), [(2, []), (3, [2])])
def test_who_looks_for_ends_a_step_later_may_rest_after_one(late: int, rests: list[int]) -> None:
    """Two steps after an end, and no third (S-SCHED-4)."""
    of = evidence(IdealSubject(), QUEUE)
    since = of.schedule.spans[0][1] + 1
    rows = of.subject.typed("round.rows", BatchRow)
    moved = with_steps(of, {key: row.step + late * (row.step >= since) for key, row in rows.items()})
    found = find("schedule.legal").check(replace(moved, limits=Limits(finish="uncut")))
    assert {one.expected for one in found} == {f"a batch in step {since + after}" for after in rests}


def test_steps_before_the_next_arrival_may_rest() -> None:
    late = (*REQUESTS[:3], msgspec.structs.replace(REQUESTS[3], arrival=40))
    of = evidence(IdealSubject(), validate(msgspec.structs.replace(QUEUE, requests=late)))
    assert of.schedule.spans[3][0] == 40
    assert overtaken(of) == []
    sooner = replace(of, scenario=msgspec.structs.replace(of.scenario, requests=(*late[:3], REQUESTS[3])))
    assert find("schedule.legal").check(sooner) != []


def test_a_queue_of_several_is_counted() -> None:
    assert counts(evidence(IdealSubject(), QUEUE))["admitted_before_others"] > 0


def test_nobody_waits_for_a_row_that_was_admitted_later() -> None:
    """Three requests, of which two may decode together: request 2 in the place of request 1 is one too early."""
    three = (request(0, 3, 4, "0/0"), request(0, 3, 8, "0/0"), request(0, 3, 4, "0/0"))
    memory = Memory(page_size=4, pages=14, request_slots=3, max_len=30)
    crowded = validate(msgspec.structs.replace(QUEUE, memory=memory, requests=three))
    of = evidence(IdealSubject(), crowded)
    assert overtaken(of) == []
    rows = of.subject.typed("round.rows", BatchRow)
    other = {1: 2, 2: 1}
    swapped = edited(
        of,
        "round.rows",
        lambda key, _: rows[key._replace(request=other[key.request])],
        lambda key: key.request and 0 < key.round < 4,
    )
    assert overtaken(swapped) == ["request 1 first, not request 2"]
