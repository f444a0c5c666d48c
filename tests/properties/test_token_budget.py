"""A budget of tokens for an engine step: who gets how many, and what does not change (S-SCHED-10)."""

from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.contracts.registry import find
from draftproof.properties.coverage.counts import counts
from draftproof.properties.coverage.effects import acts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.judge import judge
from draftproof.properties.values.observed import BatchRow
from draftproof.properties.values.relations import Missing, OffBy, Surplus
from draftproof.properties.values.scenario import Scenario
from draftproof.reference.solve import solve
from tests.named import named
from tests.properties.breaking import edited, ran
from tests.properties.evidence import (
    NGRAM,
    STATIC,
    EngineSubject,
)
from tests.properties.facts import names_of

CONTRACT = find("schedule.token_budget")


def budgeted(tokens: int, scenario: Scenario = STATIC) -> Scenario:
    """Return the scenario with so many tokens a step."""
    return replace(scenario, schedule=replace(scenario.schedule, token_budget=tokens))


def taken(of: Evidence) -> dict[int, int]:
    """Return the tokens that each step ran."""
    found = Counter[int]()
    for row in of.schedule.rows:
        found[row.step] += row.count + row.phase
    return dict(found)


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 6, 8, 11, 100])
def test_no_step_runs_more_and_texts_stay(tokens: int) -> None:
    of = ran(budgeted(tokens))
    assert max(taken(of).values()) <= tokens
    assert of.subject.texts == {index: one.tokens for index, one in enumerate(solve(STATIC).requests)}


def test_as_many_as_all_would_take_change_nothing() -> None:
    plain, whole = lockstep(EngineSubject(), STATIC), ran(budgeted(1000))
    rows = [of.subject.channel("round.rows") for of in (plain, whole)]
    assert rows[0] == rows[1]
    assert not any(counts(whole)[name] for name in names_of("token-budget"))


def test_who_was_admitted_first_takes_first() -> None:
    # A chunk of 4 of the first prompt, and one token of the second; then 3 and 2.
    of = ran(budgeted(5))
    first = [(row.step, row.request, row.count) for row in of.schedule.rows if row.step < 2]
    assert first == [(0, 0, 4), (0, 1, 1), (1, 0, 3), (1, 1, 2)]
    assert counts(of)["chunks_cut_by_token_budget"] > 0


def test_a_round_is_cut_to_what_is_left_and_one_token_is_enough() -> None:
    of = ran(budgeted(4))
    counted = counts(of)
    assert counted["drafts_cut_by_token_budget"] > 0
    assert counted["waits_for_token_budget"] > 0
    # One that wants a draft and more, behind one that takes three of four.
    assert any(row.phase and not row.count and taken(of)[row.step] == 4 for row in of.schedule.rows)


def test_nobody_is_admitted_without_a_token() -> None:
    of = ran(budgeted(1))
    assert {len(rows) for rows in of.schedule.batches.values()} == {1}
    firsts = [of.schedule.spans[index][0] for index in range(4)]
    assert firsts == sorted(set(firsts))


def test_a_draft_that_finds_fewer_took_what_it_might_have_had() -> None:
    of = ran(budgeted(4, NGRAM))
    assert max(taken(of).values()) <= 4


@pytest.mark.parametrize(
    ("other", "tokens", "scenario"),
    [
        ("aborts", 5, "aborted"),
        ("preemption", 9, "preempted_hybrid"),
        ("adaptive-steps", 5, "adaptive_rising"),
        ("draft-batch", 5, "draft_batch"),
        ("prefix-cache", 5, "prefix_cached"),
    ],
)
def test_both_act_beside_what_changes_a_step(other: str, tokens: int, scenario: str) -> None:
    of = ran(budgeted(tokens, named(scenario)))
    assert judge(of).passed
    assert all(acts(name, counts(of)) for name in ("token-budget", other))
    assert max(taken(of).values()) <= tokens


def _changed(of: Evidence, change: Callable[[BatchRow], BatchRow | None], step: int, request: int) -> Evidence:
    return edited(
        of, "round.rows", lambda _, row: change(row) if row.step == step else row, lambda key: key.request == request
    )


def test_more_or_fewer_tokens_are_noticed() -> None:
    of = ran(budgeted(5))
    (found,) = CONTRACT.check(_changed(of, lambda row: replace(row, count=row.count + 1), 0, 1))
    assert (found.request, found.relation) == (1, OffBy(1))
    (found,) = CONTRACT.check(_changed(of, lambda row: replace(row, count=row.count - 1), 0, 0))
    assert (found.request, found.relation) == (0, OffBy(-1))


def test_a_row_that_lacks_or_should_not_be_there_is_noticed() -> None:
    of = ran(budgeted(4))
    last = max(row.step for row in of.schedule.rows if not row.request and row.step < of.schedule.spans[0][1])
    found = CONTRACT.check(_changed(of, lambda row: None, last, 0))[0]
    assert (found.request, found.relation) == (0, Missing())
    waits = next(
        (step, index)
        for step in range(of.schedule.last_step)
        for index, tokens in of.plans.tokens_of_step(step).items()
        if tokens < of.plans.tokens_wanted(step)[index] and not tokens
    )
    later = min(row.step for row in of.schedule.rows if row.request == waits[1] and row.step > waits[0])
    sooner = _changed(of, lambda row: replace(row, step=waits[0]), later, waits[1])
    found = CONTRACT.check(sooner)[0]
    assert (found.request, found.relation) == (waits[1], Surplus())
