"""How far a float of a real model may be off: the table, or what the reference's own rounding carries."""

import numpy as np
import pytest
from msgspec.structs import replace

from draftproof.properties.evidence.comparison import (
    before_ties,
    find_other_tokens,
    find_ties,
    is_tied,
    of_same_tokens,
)
from draftproof.properties.evidence.tolerances import CARRIED, CLOSE_EXPERTS, EPSILON, near
from draftproof.properties.values.observed import Datum
from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.properties.values.trace import Key, Observation, Trace
from tests.named import named

EPS = EPSILON["float32"]
KEY = Key(0, 1, layer=0, row=0)
RIGHT = np.array([1.0, -0.5])


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return replace(named("eagle_padded"), model=Checkpoint(path="x", vocab=50))


def test_without_a_second_run_the_table_decides(scenario: Scenario):
    within = near(scenario, "commit.kv", {KEY: RIGHT}, {})
    assert within(KEY, RIGHT, RIGHT + 10 * EPS)
    assert not within(KEY, RIGHT, RIGHT + 100 * EPS)
    assert not within(KEY, RIGHT, RIGHT * np.nan)


def test_a_key_is_turned_by_its_position(scenario: Scenario):
    """Two units for each position, of an entry and of nothing else."""
    far = Key(0, 1, layer=0, row=300)
    entry, hidden = (near(scenario, name, {far: RIGHT}, {}) for name in ("commit.kv", "verify.hidden"))
    assert entry(far, RIGHT, RIGHT + 600 * EPS)
    assert not entry(far, RIGHT, RIGHT + 700 * EPS)
    assert not hidden(far, RIGHT, RIGHT + 100 * EPS)


def test_a_wrong_default_does_not_fit_in(scenario: Scenario):
    """A norm with 1e-5 where 3e-5 is configured."""
    states = np.array([0.9, -1.1, 0.4])
    right, wrong = (states / np.sqrt((states**2).mean() + eps) for eps in (3e-5, 1e-5))
    rounded = {KEY: right.astype(np.float32).astype(np.float64)}
    assert not near(scenario, "commit.kv", {KEY: right}, rounded)(KEY, right, wrong)


def test_an_ill_conditioned_model_widens_its_bounds(scenario: Scenario):
    within = near(scenario, "commit.kv", {KEY: RIGHT}, {KEY: RIGHT + np.array([1000 * EPS, 0.0])})
    assert within(KEY, RIGHT, RIGHT + 0.9 * CARRIED * 1000 * EPS)
    assert not within(KEY, RIGHT, RIGHT + 1.1 * CARRIED * 1000 * EPS)


def test_a_vector_that_is_near_by_luck_has_the_bound_of_the_run(scenario: Scenario):
    """The root mean square of three distances of 1000 and one of 0; other tokens have no part in it."""
    keys = [Key(0, number, layer=0, row=0) for number in range(4)]
    rounded = {key: RIGHT + 1000 * EPS * bool(number) for number, key in enumerate(keys)}
    within, usual = near(scenario, "commit.kv", dict.fromkeys(keys, RIGHT), rounded), np.sqrt(0.75) * 1000 * EPS
    assert within(keys[0], RIGHT, RIGHT + 0.99 * CARRIED * usual)
    assert not within(keys[0], RIGHT, RIGHT + 1.01 * CARRIED * usual)
    assert within(keys[1], RIGHT, RIGHT + 0.99 * CARRIED * 1000 * EPS)
    assert not near(scenario, "commit.kv", {}, rounded)(keys[0], RIGHT, RIGHT + 1000 * EPS)


@pytest.mark.parametrize(
    ("off", "of_others", "asked", "expected"),
    [(7.9, (0.0,), 0, True), (100, (9.0, 13.0), 1, True), (100, (9.0, 12.0), 1, False), (130, (100.0,), 0, False)],
    ids=["within", "one of the others is as far", "none is", "too far to be luck"],
)
def test_what_is_little_beyond_is_held_to_more_runs(scenario: Scenario, off, of_others, asked, expected):
    """Off by so many times what the first run is off; the others are off by `of_others` times that."""
    unit, calls = 1000 * EPS, []

    def again():
        calls.append(1)
        return [{KEY: RIGHT + times * unit} for times in of_others]

    within = near(scenario, "commit.kv", {KEY: RIGHT}, {KEY: RIGHT + unit}, again)
    assert within(KEY, RIGHT, RIGHT + off * unit) == expected
    assert len(calls) == asked
    assert not within(KEY, RIGHT, RIGHT * np.nan)


def test_a_float64_subject_gets_bounds_of_its_own_epsilon(scenario: Scenario):
    model = replace(scenario.model, dtype="float64")
    within = near(replace(scenario, model=model), "commit.kv", {KEY: RIGHT}, {KEY: RIGHT + 1000 * EPS})
    assert within(KEY, RIGHT, RIGHT + 1000 * EPSILON["float64"])
    assert not within(KEY, RIGHT, RIGHT + EPS)


def test_only_tokens_near_the_best_are_tied(scenario: Scenario):
    """By the reference's own distance in float64, and what rounding makes of it in float32."""
    key = Key(0, 1, row=0)

    def reference(below: float, rounded: float | None = None) -> Trace:
        said = (Observation("verify.choice", key, (3, below)),)
        near = {("verify.choice", key): ((4, below), (5, 0.9))}
        second = None
        if rounded is not None:
            second = Trace("x", frozenset({"verify.choice"}), said, near={("verify.choice", key): ((4, rounded),)})
        return Trace("x", frozenset({"verify.choice"}), said, near=near, rounded=second)

    def tied(one: Trace, token: int) -> bool:
        return is_tied(scenario, one, "verify.choice", key, token)

    assert not tied(reference(0.5), 3)
    assert not tied(reference(0.5, 0.5), 4)
    assert tied(reference(0.5, 0.4), 4)
    assert tied(reference(1e-6), 4)
    assert not tied(reference(1e-6), 5)
    assert not tied(reference(1e-6), 6)


def trace(*choices: tuple[int, int, int], gaps: dict[tuple[int, int], float] | None = None) -> Trace:
    """A trace of choices (request, round, token)."""
    seen = tuple(Observation("verify.choice", Key(r, n, row=0), (token, 1.0)) for r, n, token in choices)
    return Trace("x", frozenset({"verify.choice"}), seen, gaps=gaps or {})


def test_a_narrow_choice_of_experts_ends_a_request_with_its_round(scenario: Scenario):
    reference = trace((0, 1, 5), (1, 1, 5), gaps={(0, 0): 1.0, (0, 2): CLOSE_EXPERTS / 2, (0, 3): 0.0, (1, 4): 1e-3})
    ties = find_ties(scenario, reference, trace(), {})
    assert ties == {0: (2,)}
    values = {Key(request, round_): 1 for request in (0, 1) for round_ in (1, 2, 3)}
    assert set(before_ties("accept.correct_len", values, ties)) == {Key(0, 1), *(Key(1, n) for n in (1, 2, 3))}


def test_nothing_is_taken_from_a_second_run_behind_another_walk():
    values = tuple(Observation("commit.length", Key(0, number), 9) for number in (1, 2, 3))

    def taken(channel: str, key: Key, *said: Datum) -> set[int]:
        """The rounds of which the second run of two that say these of something is taken."""
        exact, rounded = (
            Trace("x", frozenset({channel, "commit.length"}), (Observation(channel, key, one), *values)) for one in said
        )
        return {at.round for at in of_same_tokens("commit.length", rounded, find_other_tokens(exact, rounded))}

    assert taken("accept.index", Key(0, 2), (0, 1), (0, 1)) == {1, 2, 3}
    assert taken("accept.index", Key(0, 2), (0, 1), (0,)) == {1}
    # What it verifies and emits is given: its own choices change nothing of that.
    assert taken("verify.choice", Key(0, 2, row=0), (6, 1.0), (9, 1.0)) == {1, 2, 3}
    assert taken("draft.step.proposal", Key(0, 2, step=1), (6, 1.0), (9, 1.0)) == {1, 2, 3}


def test_what_a_second_run_drafts_behind_another_draft_is_not_taken():
    said = [Observation("draft.step.hidden_in", Key(0, 2, step=step), RIGHT) for step in (1, 2, 3)]
    said.append(Observation("draft.step.hidden_in", Key(0, 3, step=1), RIGHT))
    exact, rounded = (
        Trace("x", frozenset({"draft.step.proposal", "draft.step.hidden_in"}), (*said, Observation(*proposal)))
        for proposal in (("draft.step.proposal", Key(0, 2, step=1), (token, 1.0)) for token in (6, 9))
    )
    taken = of_same_tokens("draft.step.hidden_in", rounded, find_other_tokens(exact, rounded))
    assert [(key.round, key.step) for key in taken] == [(2, 1), (3, 1)]


def test_nothing_is_taken_from_a_second_run_behind_close_experts():
    one, two = trace((0, 1, 5), (0, 2, 5)), trace((0, 1, 5), (0, 2, 5), gaps={(0, 2): CLOSE_EXPERTS / 2})
    taken = of_same_tokens("verify.choice", two, find_other_tokens(one, two))
    assert [key.round for key in taken] == [1]
