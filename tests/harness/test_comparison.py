"""Two logs beside each other: which rounds are compared, where they part, and how often equal engines alarm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from draftproof.harness.audit.comparison import pair_verdict
from draftproof.harness.audit.pairing import first_parting, paired_logs, parting
from draftproof.harness.audit.statistics import of_two
from draftproof.harness.audit.tally import Tally
from draftproof.properties.formats.round_log import LoggedRound, LoggedText
from draftproof.properties.values.verdict import Outcome

Rounds = list[dict[str, Any]]
TOKENS = (4, 7, 3, 9, 1, 8)


def text(prompt: tuple[int, ...], rounds: Rounds) -> LoggedText:
    return LoggedText.of(prompt, [LoggedRound(request=0, round=at, **one) for at, one in enumerate(rounds)])


def emitting(*emitted: int, **more: Any) -> dict[str, Any]:
    return {"emitted": emitted, **more}


FIRST, LAST = emitting(4), emitting(9)
PARTINGS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int, str] | None]] = {
    "the same": (emitting(7, 3, drafts=(7, 1)), emitting(7, 3, drafts=(7, 1)), None),
    "another draft": (emitting(7, 3, drafts=(7, 1)), emitting(7, 3, drafts=(7, 2)), (2, "drafts")),
    "fewer drafts": (emitting(7, 3, drafts=(7, 1, 1)), emitting(7, 3, drafts=(7, 1)), None),
    "none on one side": (emitting(7, drafts=(2, 1)), emitting(7, drafts=()), None),
    "fewer drafts, all accepted": (emitting(7, 3, 9, drafts=(7, 3)), emitting(7, 3, drafts=(7,)), None),
    "a draft not accepted": (emitting(7, 3, drafts=(7, 1)), emitting(7, drafts=(7, 1)), (2, "emitted")),
    "another token": (emitting(7, 3, drafts=(7, 1)), emitting(7, 5, drafts=(7, 1)), (2, "emitted")),
    "numbers alone": (emitting(7, 3, num_drafts=2), emitting(7, num_drafts=2), (2, "emitted")),
    "numbers that differ": (emitting(7, 3, 9, num_drafts=3), emitting(7, 3, num_drafts=1), None),
    "nothing told": (emitting(7, 3), emitting(7, 3, 9), (3, "emitted")),
    "told on one side": (emitting(7, 3, drafts=(7, 1)), emitting(7, 3), None),
}


@pytest.mark.parametrize("what", PARTINGS)
def test_where_two_rounds_part(what: str):
    one, other, expected = PARTINGS[what]
    logs = paired_logs([text((5,), [FIRST, one, LAST])], [text((5,), [FIRST, other, LAST])])
    start = next(iter(logs.starts))
    assert (start.context, parting(start)) == (2, expected)


def test_a_last_round_is_compared_as_far_as_it_goes():
    logs = paired_logs(
        [text((5,), [FIRST, emitting(7, 3, drafts=(7, 3))])], [text((5,), [FIRST, emitting(7, 3, 9, drafts=(7, 3))])]
    )
    assert [parting(start) for start in logs.starts] == [None]


EXACTLY = {
    "fewer drafts": (3, "number"),
    "fewer drafts, all accepted": (2, "number"),
    "numbers that differ": (2, "number"),
    "none on one side": (1, "number"),
    "another draft": (2, "drafts"),
    "told on one side": None,
    "the same": None,
}


@pytest.mark.parametrize("what", EXACTLY)
def test_exactly_the_same_has_as_many_drafts(what: str):
    one, other, loosely = PARTINGS[what]
    after = [emitting(5, drafts=(1, 1, 1)) for _ in range(3)]
    logs = paired_logs([text((5,), [FIRST, one, *after])], [text((5,), [FIRST, other, *after])])
    start = next(iter(logs.starts))
    assert (parting(start), parting(start, exact=True)) == (loosely, EXACTLY[what])


def test_a_text_without_room_for_more_drafts_has_fewer():
    for fewer, expected in ((1, None), (0, (1, "number"))):
        logs = paired_logs(
            [text((5,), [FIRST, emitting(7, drafts=(1, 1, 1)), emitting(3, drafts=(1,)), LAST])],
            [text((5,), [FIRST, emitting(7, drafts=(1, 1, 1)), emitting(3, drafts=(1,) * fewer), LAST])],
        )
        assert [parting(start, exact=True) for start in logs.starts] == [None, expected, None]
    logs = paired_logs(
        [text((5,), [FIRST, emitting(7, 3, drafts=(7, 1, 1))])], [text((5,), [FIRST, emitting(7, 3, drafts=(7,))])]
    )
    assert [parting(start, exact=True) for start in logs.starts] == [None]


def test_a_round_that_emits_less_is_another_also_if_the_text_ends_on_one_side():
    whole = text((5,), [FIRST, emitting(7, 3, num_drafts=1)])
    halves = text((5,), [FIRST, emitting(7, num_drafts=1), emitting(3, num_drafts=0)])
    for logs in (paired_logs([whole], [halves]), paired_logs([halves], [whole])):
        assert [parting(start, exact=True) for start in logs.starts] == [(2, "emitted")]


def test_an_engine_that_leaves_drafts_out_is_told_and_not_exactly_the_same():
    def engine(*drafts: tuple[int, ...]) -> list[LoggedText]:
        return [text((at,), [FIRST, *(emitting(9, drafts=one) for one in drafts * 2)]) for at in range(12)]

    whole, lacking = engine((7, 1), (7, 1), (7, 1)), engine((7, 1), (), (7,))
    found = pair_verdict("other", whole, lacking)
    assert (found.verdict, found.same, found.rounds) == (Outcome.PASS, 72, 72)
    assert (found.fewer, found.none) == ((0, 36), (0, 24))
    assert found.says.endswith("went alike; this one had fewer drafts in 36 of them, none in 24 of these")
    assert "the first had fewer drafts in 36 of them" in pair_verdict("other", lacking, whole).says
    found = pair_verdict("other", whole, lacking, exact=True)
    assert (found.verdict, found.same) == (Outcome.FAIL, 36)
    assert found.first is not None
    assert (found.first.what, found.first.rounds, found.first.numbers) == ("number", (2, 2), (2, 0))


def test_a_round_that_says_nothing_of_drafts_has_none_where_others_say():
    def engine(**second: Any) -> list[LoggedText]:
        more = [emitting(9, drafts=(7, 1)), emitting(9, **second), *[emitting(9, drafts=(7, 1))] * 3]
        return [text((5,), [FIRST, *more])]

    found = pair_verdict("other", engine(drafts=(7, 1)), engine(), exact=True)
    assert (found.verdict, found.fewer, found.none) == (Outcome.FAIL, (0, 1), (0, 1))
    assert pair_verdict("other", engine(), engine(), exact=True).verdict is Outcome.PASS
    silent = [text((5,), [FIRST, *[emitting(9)] * 5])]
    assert pair_verdict("other", engine(drafts=(7, 1)), silent, exact=True).fewer == (0, 0)


def test_drafts_in_round_0_of_one_side_alone_are_seen():
    ours = [text((at,), [emitting(4, drafts=(1,)), *[emitting(9, drafts=(2,))] * 3]) for at in range(12)]
    theirs = [text((at,), [FIRST, *[emitting(9, drafts=(2,))] * 3]) for at in range(12)]
    for one, other, fewer in ((ours, theirs, (0, 12)), (theirs, ours, (12, 0))):
        found = pair_verdict("other", one, other, exact=True)
        assert (found.verdict, found.fewer, found.rounds - found.same) == (Outcome.FAIL, fewer, 12)


def test_rounds_are_compared_where_both_begin_after_the_same_text():
    whole = text((5,), [FIRST, emitting(7, 3, drafts=(7, 1)), emitting(9, drafts=(2, 2)), emitting(1, drafts=(6, 6))])
    short = text((5,), [FIRST, emitting(7, drafts=(6, 6)), emitting(3, drafts=(2, 2)), emitting(9, drafts=(2, 2))])
    other = text((6,), [FIRST, emitting(7, drafts=(1, 1))])
    logs = paired_logs([other, whole, whole], [whole, short])
    assert [one.places for one in logs.texts] == [(1, 0), (2, 1)]
    assert (logs.unpaired, [len(one.starts) for one in logs.texts]) == (1, [3, 2])
    found = first_parting(logs)
    assert found is not None
    assert (found.request, found.rounds, found.context, found.depth) == (2, (1, 1), 2, 1)


def test_what_follows_another_token_is_not_compared():
    one = text((5,), [FIRST, emitting(7, 3, drafts=(7, 1)), emitting(9, drafts=(2,))])
    other = text((5,), [FIRST, emitting(7, 8, drafts=(7, 1)), emitting(1, drafts=(3,))])
    (paired,) = paired_logs([one], [other]).texts
    assert (paired.parts_at, len(paired.starts)) == (3, 1)


def log(drafts: tuple[int, ...], accepted: int, prompts: int = 12) -> list[LoggedText]:
    """Return an engine that proposes the same in three rounds of every prompt."""
    rounds = [FIRST, *[emitting(*drafts[:accepted], 9, drafts=drafts)] * 3]
    return [text((prompt,), rounds) for prompt in range(prompts)]


OPEN = {
    "few prompts": (log((7, 1), 0, 9), log((7, 1), 0, 9), "that so few prompts could show"),
    "no drafts": (log((), 0), log((), 0), "no draft was seen"),
    "other numbers": (log((7, 1), 0), log((7,), 0), "at most 2 drafts a round and this one 1: give both as many"),
}


@pytest.mark.parametrize("what", OPEN)
def test_what_shows_nothing_is_no_pass(what: str):
    one, other, told = OPEN[what]
    found = pair_verdict("other", one, other)
    assert (found.verdict, told in found.says) == (Outcome.INCONCLUSIVE, True)


def test_exactly_the_same_takes_no_statistics_but_a_draft():
    few = log((7, 1), 0, 1)
    assert pair_verdict("other", few, few, exact=True).verdict is Outcome.PASS
    none = log((), 0, 5)
    assert pair_verdict("other", none, none, exact=True).verdict is Outcome.INCONCLUSIVE


def test_rounding_is_told_from_another_engine():
    one = log((7, 1), 0, 60)
    for changed, expected in ((1, Outcome.PASS), (4, Outcome.INCONCLUSIVE), (30, Outcome.FAIL)):
        found = pair_verdict("other", one, [*log((7, 2), 0, changed), *one[changed:]])
        assert (found.verdict, found.rounds - found.same) == (expected, 3 * changed)
        assert (
            pair_verdict("other", one, [*log((7, 2), 0, changed), *one[changed:]], exact=True).verdict is Outcome.FAIL
        )


def test_an_alarm_of_equal_engines_is_rare_and_a_shortfall_is_seen():
    """Prompts differ in their rates, and so does each engine's number of rounds: 2,000 pairs of equal engines."""
    draws, alarms = np.random.default_rng(5), 0
    for _ in range(2000):
        chance, tallies = draws.beta(2, 2, 30), []
        for _side in range(2):
            rounds = draws.integers(10, 30, 30)
            tallies.append(Tally(rounds, draws.binomial(rounds, chance)[:, None]))
        alarms += of_two(*tallies).alarms()
    assert alarms <= 8  # 2,000 * 0.001 are 2; more than 8 have a probability of 2e-4
    rounds = np.full(30, 20)
    short = Tally(rounds, draws.binomial(rounds, 0.4)[:, None])
    assert of_two(Tally(rounds, draws.binomial(rounds, 0.7)[:, None]), short).alarms()
