"""One engine runs prompts and hands requests over to one that decodes (S-DISAGG)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.contracts.registry import find
from draftproof.properties.coverage.counts import counts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.judge import judge
from draftproof.properties.validate import validate
from draftproof.properties.values.channels import DISAGGREGATION_CHANNELS
from draftproof.properties.values.observed import BatchRow, Owner, PoolReport
from draftproof.properties.values.scenario import Scenario, States
from draftproof.properties.values.trace import Key, Observation
from draftproof.reference.solve import solve
from tests.properties.evidence import (
    HANDED_OVER,
    OF_DRAFTS,
    STATIC,
    EngineSubject,
    handed_over,
    with_observations,
)
from tests.properties.facts import names_of

SAME = ("accept.emitted", "accept.correct_len", "commit.kv", "commit.state", "extend.kv", "draft.step.hidden_in")


def served_by_two(scenario: Scenario, **schedule: Any) -> Scenario:
    """Return the scenario with PD disaggregation."""
    return replace(scenario, schedule=replace(scenario.schedule, disaggregation=True, services=1, **schedule))


def run(scenario: Scenario) -> Evidence:
    """Return a run of the engine that is judged right."""
    of = lockstep(EngineSubject(), validate(scenario))
    assert judge(of).first is None
    return of


@pytest.mark.parametrize("draft", OF_DRAFTS)
def test_two_engines_do_what_one_does(draft: str) -> None:
    one, two = OF_DRAFTS[draft], run(served_by_two(OF_DRAFTS[draft]))
    alone = lockstep(EngineSubject(), one).subject
    assert two.subject.texts == {index: of.tokens for index, of in enumerate(solve(one).requests)}
    for channel in SAME:
        assert two.subject.channel(channel) == alone.channel(channel)


@pytest.mark.parametrize("commit", ["snapshot", "replay"])
def test_states_and_checkpoints_go_along(commit: Any) -> None:
    counted = counts(run(replace(HANDED_OVER, states=States(commit=commit, checkpoint=2))))
    assert counted["disaggregated_requests"] == counted["disaggregated_states"] == 4


def test_what_is_handed_over_is_counted() -> None:
    counted = counts(handed_over())
    assert all(counted[f"disaggregated_{name}"] for name in ("in_chunks", "several_pages", "partial_pages"))
    assert counted["disaggregated_waiting"] > 0
    assert counted["disaggregated_hidden_states"] == counted["disaggregated_requests"]
    assert not any(counts(lockstep(EngineSubject(), STATIC))[name] for name in names_of("disaggregation"))


def test_no_request_has_the_same_pages_on_both() -> None:
    tables, pages = handed_over().tables.pages, HANDED_OVER.memory.pages
    for request in range(4):
        assert min(tables[request, 0].values()) > pages >= max(tables[request, 1].values())


def test_a_request_on_its_way_owns_nothing() -> None:
    of = handed_over()
    left = {row.request: row.step for row in of.schedule.rows if not row.phase}
    first = {request: of.schedule.decode_steps[request, 1] for request in left}
    assert any(first[request] > left[request] + 1 for request in left)
    for key, report in of.subject.typed("pool.owners", PoolReport).items():
        on_its_way = {request for request in left if left[request] <= key.round < first[request]}
        assert not on_its_way & {owner.request for owner in report.owners}


def test_who_ends_with_its_prompt_is_not_handed_over() -> None:
    first, *rest = HANDED_OVER.requests
    of = run(replace(HANDED_OVER, requests=(replace(first, budget=1, stop_at=-1), *rest)))
    assert counts(of)["disaggregated_requests"] == 3
    assert not any(key.request == 0 for key in of.subject.channel("disaggregation.token"))


def _changed(of: Evidence, change: Callable[[Observation], Observation]) -> Evidence:
    return with_observations(of, map(change, of.subject.observations))


def _later(of: Evidence, request: int, round_: int) -> Evidence:
    """Return the evidence with the rows of a request a step later from a round on."""

    def later(one: Observation) -> Observation:
        row, key = one.value, one.key
        if not isinstance(row, BatchRow) or key.request != request or key.round < round_:
            return one
        return one._replace(value=BatchRow(row.place, row.count, row.phase, row.size, row.step + 1))

    return _changed(of, later)


def test_a_request_that_waits_for_no_reason_is_noticed() -> None:
    contract = find("disaggregation.schedule")
    assert contract.check(handed_over()) == []
    assert contract.check(_later(handed_over(), 0, 1))
    assert contract.check(_later(handed_over(), 0, 0))


def test_pages_that_the_prefill_engine_keeps_are_noticed() -> None:
    def kept(one: Observation) -> Observation:
        report = one.value
        if not isinstance(report, PoolReport) or one.key.round <= handed_over().schedule.last_step:
            return one
        return one._replace(value=PoolReport(report.free_pages - 1, report.free_rows, (Owner(20, 0),)))

    assert find("pool.balance").check(_changed(handed_over(), kept))


def test_a_page_of_the_other_engine_is_noticed() -> None:
    def moved(one: Observation) -> Observation:
        is_first = one.channel == "round.table" and one.key == Key(0, 0, row=0)
        return one._replace(value=1) if is_first else one

    (found,) = find("disaggregation.engines").check(_changed(handed_over(), moved))
    assert found.channel == "round.table"


def test_who_has_one_engine_tells_nothing_of_two() -> None:
    assert not DISAGGREGATION_CHANNELS & EngineSubject().channels(STATIC)
    assert EngineSubject().channels(HANDED_OVER) >= DISAGGREGATION_CHANNELS
