"""One engine runs prompts and transfers requests to one that decodes (S-DISAGG)."""

from typing import Any

import pytest
from msgspec.structs import replace

from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.contracts.registry import find
from draftproof.properties.coverage.counts import counts
from draftproof.properties.values.channels import DISAGGREGATION_CHANNELS
from draftproof.properties.values.observed import Owner, PoolReport
from draftproof.properties.values.scenario import Scenario, States
from draftproof.properties.values.trace import Key
from draftproof.reference.solve import solve
from tests.properties.breaking import edited, later, ran, with_value
from tests.properties.evidence import (
    DISAGGREGATED,
    OF_DRAFTS,
    STATIC,
    EngineSubject,
    by_engine,
)

SAME = ("accept.emitted", "accept.correct_len", "commit.kv", "commit.state", "extend.kv", "draft.step.hidden_in")


def served_by_two(scenario: Scenario, **schedule: Any) -> Scenario:
    """Return the scenario with PD disaggregation."""
    return replace(scenario, schedule=replace(scenario.schedule, disaggregation=True, services=1, **schedule))


@pytest.mark.parametrize("draft", OF_DRAFTS)
def test_two_engines_do_what_one_does(draft: str) -> None:
    one, two = OF_DRAFTS[draft], ran(served_by_two(OF_DRAFTS[draft]))
    alone = lockstep(EngineSubject(), one).subject
    assert two.subject.texts == {index: of.tokens for index, of in enumerate(solve(one).requests)}
    for channel in SAME:
        assert two.subject.channel(channel) == alone.channel(channel)


@pytest.mark.parametrize("commit", ["snapshot", "replay"])
def test_states_and_checkpoints_go_along(commit: Any) -> None:
    counted = counts(ran(replace(DISAGGREGATED, states=States(commit=commit, checkpoint=2))))
    assert counted["disaggregated_requests"] == counted["disaggregated_states"] == 4


def test_what_is_handed_over_is_counted() -> None:
    counted = counts(by_engine(DISAGGREGATED))
    assert all(counted[f"disaggregated_{name}"] for name in ("in_chunks", "several_pages", "partial_pages"))
    assert counted["disaggregated_waiting"] > 0
    assert counted["disaggregated_hidden_states"] == counted["disaggregated_requests"]


def test_no_request_has_the_same_pages_on_both() -> None:
    tables, pages = by_engine(DISAGGREGATED).tables.pages, DISAGGREGATED.memory.pages
    for request in range(4):
        assert min(tables[request, 0].values()) > pages >= max(tables[request, 1].values())


def test_a_request_on_its_way_owns_nothing() -> None:
    of = by_engine(DISAGGREGATED)
    left = {row.request: row.step for row in of.schedule.rows if not row.phase}
    first = {request: of.schedule.decode_steps[request, 1] for request in left}
    assert any(first[request] > left[request] + 1 for request in left)
    for key, report in of.subject.typed("pool.owners", PoolReport).items():
        on_its_way = {request for request in left if left[request] <= key.round < first[request]}
        assert not on_its_way & {owner.request for owner in report.owners}


def test_who_ends_with_its_prompt_is_not_handed_over() -> None:
    first, *rest = DISAGGREGATED.requests
    of = ran(replace(DISAGGREGATED, requests=(replace(first, budget=1, stop_at=-1), *rest)))
    assert counts(of)["disaggregated_requests"] == 3
    assert not any(key.request == 0 for key in of.subject.channel("disaggregation.token"))


def test_a_request_that_waits_for_no_reason_is_noticed() -> None:
    contract, first = find("disaggregation.schedule"), by_engine(DISAGGREGATED).schedule.decode_steps[0, 1]
    assert contract.check(by_engine(DISAGGREGATED)) == []
    assert contract.check(later(by_engine(DISAGGREGATED), 0, first))
    assert contract.check(later(by_engine(DISAGGREGATED), 0))


def test_pages_that_the_prefill_engine_keeps_are_noticed() -> None:
    of = by_engine(DISAGGREGATED)
    kept = edited(
        of,
        "pool.owners",
        lambda _, report: PoolReport(report.free_pages - 1, report.free_rows, (Owner(20, 0),)),
        lambda key: key.round > of.schedule.last_step,
    )
    assert find("pool.balance").check(kept)


def test_a_page_of_the_other_engine_is_noticed() -> None:
    (found,) = find("disaggregation.engines").check(
        with_value(by_engine(DISAGGREGATED), "round.table", Key(0, 0, row=0), 1)
    )
    assert found.channel == "round.table"


def test_who_has_one_engine_tells_nothing_of_two() -> None:
    assert not DISAGGREGATION_CHANNELS & EngineSubject().channels(STATIC)
    assert EngineSubject().channels(DISAGGREGATED) >= DISAGGREGATION_CHANNELS
