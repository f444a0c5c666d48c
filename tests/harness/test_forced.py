"""Forced acceptance: what is promised always or never is exact, the rest a test whose errors are as they are named."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from draftproof.harness.audit.forced import (
    MODES,
    ForcedCounts,
    Promise,
    Rates,
    _chance,
    forced,
    forced_in_log,
    geometric,
    least_variance,
    rounded_normal,
)
from draftproof.properties.formats.forced import FORCED_BY, ForcedBy, ForcedReport
from draftproof.properties.formats.round_log import LoggedRound, LoggedText
from draftproof.properties.values.verdict import Outcome


@pytest.mark.parametrize(
    ("schedule", "length", "steps", "expected"),
    [
        (least_variance, 2.6, 3, (1.0, 0.6, 0.0)),
        (least_variance, 1.0, 3, (0.0, 0.0, 0.0)),
        (least_variance, 4.0, 3, (1.0, 1.0, 1.0)),
        (geometric, 1.75, 2, (0.5, 0.25)),
        (geometric, 3.0, 2, (1.0, 1.0)),
        (rounded_normal, 2.5, 1, (0.8413,)),
    ],
)
def test_schedules_are_those_of_the_engines(
    schedule: Callable[[float, int], Rates], length: float, steps: int, expected: Rates
):
    assert schedule(length, steps) == pytest.approx(expected, abs=1e-4)


def test_every_way_that_can_be_named_promises_something():
    assert tuple(MODES) == FORCED_BY


def test_a_chance_is_that_of_the_binomial_distribution():
    """Against sums of whole numbers over whole numbers; shared draws have Hoeffding's bound, which is above it."""
    for tried, accepted in ((7, 0), (7, 7), (20, 3), (20, 11)):
        ways = [math.comb(tried, count) * 3**count for count in range(tried + 1)]
        tails = sum(ways[: accepted + 1]), sum(ways[accepted:])
        exactly = min(1.0, 2 * min(tails) / 4**tried)
        assert _chance(accepted, tried, 0.75, 1) == pytest.approx(exactly)
        assert _chance(accepted, tried, 0.75, 2) >= exactly


def counts(accepted: Sequence[int], steps: int) -> ForcedCounts:
    """Return the counts of rounds, each with so many accepted drafts and all drafts that there are."""
    passed = tuple(sum(one > place for one in accepted) for place in range(steps))
    return ForcedCounts((len(accepted),) * steps, (len(accepted), *passed)[:steps], passed, len(accepted))


def test_what_is_promised_always_and_never_is_exact():
    promise = Promise("vllm", least_variance(3.0, 3))
    assert forced(promise, counts([2, 2, 2], 3)).verdict is Outcome.PASS
    for accepted in ([2, 2, 1], [2, 3, 2]):
        report = forced(promise, counts(accepted, 3))
        assert (report.verdict, [one.holds for one in report.positions].count(False)) == (Outcome.FAIL, 1)
    assert forced(promise, counts([], 3)).says == "no round with drafts was seen"
    assert forced(promise, counts([2], 3)._replace(more=1)).says.endswith("1 drafts more than there are were accepted")


def test_too_few_rounds_are_no_pass():
    report = forced(Promise("vllm", least_variance(2.5, 3)), counts([1, 2] * 20, 3))
    assert report.verdict is Outcome.INCONCLUSIVE
    enough = int(report.says.split("give ")[1].split()[0])
    again = forced(Promise("vllm", least_variance(2.5, 3)), counts([1, 2] * ((enough + 1) // 2), 3))
    assert (again.verdict, again.noticeable <= 0.1) == (Outcome.PASS, True)


def test_what_was_forced_instead_is_told():
    others = [("length 3.50", least_variance(3.5, 3)), ("the schedule of llama", geometric(2.5, 3))]
    report = forced(Promise("trtllm", least_variance(2.5, 3)), counts([2, 3] * 200, 3), others)
    assert (report.verdict, report.fits) == (Outcome.FAIL, ("length 3.50",))
    assert report.says.endswith("it is as of length 3.50")


def simulated(
    draws: np.random.Generator, mode: str, length: float, steps: int, rounds: int, batch: int
) -> ForcedReport:
    """Return the check of an engine that keeps its promise; `batch` rounds share each draw."""
    rates = MODES[mode].schedule(length, steps)
    lengths = (draws.random((rounds // batch, 1)) < np.array(rates)).sum(axis=1)
    return forced(Promise(mode, rates, batch), counts(np.repeat(lengths, batch).tolist(), steps))


@pytest.mark.parametrize(("mode", "batch"), [("vllm", 1), ("llama", 1), ("sglang", 8), ("sglang-multinomial", 8)])
def test_engines_that_keep_their_promise_hardly_ever_fail(mode: ForcedBy, batch: int):
    """At most 0.001 of them: more than 4 of 500 have a probability of 2e-4."""
    draws = np.random.default_rng(3)
    failed = sum(simulated(draws, mode, 2.7, 4, 400, batch).verdict is Outcome.FAIL for _ in range(500))
    assert failed <= 4


def test_draws_that_are_shared_would_alarm_as_if_they_were_not():
    draws = np.random.default_rng(4)
    rates = least_variance(2.5, 3)
    failed = 0
    for _ in range(100):
        accepted = np.repeat(1 + (draws.random(50) < 0.5), 8).tolist()
        failed += forced(Promise("sglang", rates, 1), counts(accepted, 3)).verdict is Outcome.FAIL
    assert failed > 10


def one(number: int, drafts: int, accepted: int) -> LoggedRound:
    return LoggedRound(request=0, round=number, drafts=(1,) * drafts, emitted=(1,) * (accepted + 1))


def test_a_log_is_read_as_far_as_its_rounds_are_no_choice():
    """Twelve tokens make up three rounds of four at least; one of them has no draft, and one a single draft."""
    rounds = [one(0, 0, 0), one(1, 3, 2), one(2, 1, 1), one(3, 0, 0), one(4, 3, 3), one(5, 3, 1)]
    seen = forced_in_log([LoggedText.of((5,), rounds)], 3)
    assert seen == ForcedCounts((2, 1, 1), (2, 1, 1), (2, 1, 0), 2)
    # A round of one draft says nothing of the second: none is missing.
    assert [at.tried for at in forced(Promise("vllm", (1.0, 1.0, 0.5)), seen).positions] == [2, 1, 1]


def test_many_short_texts_do_not_alarm():
    """A text ends in a round that is likelier a long one: all others, taken together, accept less than promised."""
    draws, promise = np.random.default_rng(6), Promise("vllm", least_variance(2.5, 3))
    lengths = 1 + (draws.random((4000, 12)) < 0.5)
    log, others = [], list[int]()
    for drawn in lengths.tolist():
        count = next(at for at in range(1, 13) if sum(drawn[:at]) + at >= 12)
        others += drawn[: count - 1]
        log.append(LoggedText.of((5,), [one(0, 0, 0), *(one(at, 3, drawn[at - 1]) for at in range(1, count + 1))]))
    assert forced(promise, forced_in_log(log, 3)).verdict is Outcome.PASS
    assert forced(promise, counts(others, 3)).verdict is Outcome.FAIL
