"""Does an engine that forces acceptance keep its promise? (S-AUDIT-17).

`K` drafts of a round; a schedule is the share of rounds [K] that accept at least 1, 2, .. K drafts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from draftproof.harness.audit.statistics import AUDIT_FALSE_ALARMS
from draftproof.properties.formats.audit import ObservedCounts
from draftproof.properties.formats.forced import ForcedBy, ForcedPosition, ForcedReport
from draftproof.properties.formats.round_log import LoggedText
from draftproof.properties.values.verdict import Outcome

Rates = tuple[float, ...]
_ENOUGH = 0.1
"""A check that would not notice a mean that is off by this much is no PASS."""
_NOTICED = 1.2816
_CLOSE = 1e-9


def least_variance(length: float, steps: int) -> Rates:
    """Return the schedule of the least variance: whole drafts always, and one more with the rest as its chance."""
    return tuple(min(1.0, max(0.0, length - 1 - place)) for place in range(steps))


def geometric(length: float, steps: int) -> Rates:
    """Return p, p^2, .. p^K, whose sum is length - 1: every draft has the same chance after those before it."""
    low, high = 0.0, 1.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**k for k in range(1, steps + 1)) < length - 1 else (low, middle)
    return tuple(high**k for k in range(1, steps + 1))


def rounded_normal(length: float, steps: int) -> Rates:
    """Return the schedule of a normal deviate of that mean and variance 1, cut to 1 .. K + 1 and rounded.

    Its own mean is `length` only in the middle of the range.
    """
    return tuple(0.5 * math.erfc((place + 1.5 - length) / math.sqrt(2)) for place in range(steps))


class ForcedMode(NamedTuple):
    """A way of an engine to force acceptance: its schedule, and whether all rows of a batch share one draw."""

    schedule: Callable[[float, int], Rates]
    is_shared: bool
    where: str


MODES: Mapping[ForcedBy, ForcedMode] = {
    "vllm": ForcedMode(least_variance, False, "rejection_sample_method synthetic, synthetic_acceptance_length"),
    "sglang": ForcedMode(least_variance, True, "SGLANG_SIMULATE_ACC_LEN, ..METHOD match-expected"),
    "sglang-multinomial": ForcedMode(rounded_normal, True, "SGLANG_SIMULATE_ACC_LEN, ..METHOD multinomial"),
    "trtllm": ForcedMode(least_variance, False, "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS, length - 1"),
    "atom": ForcedMode(least_variance, False, "--spec-decode-acceptance-length"),
    "llama": ForcedMode(geometric, False, "--spec-synthetic-acceptance-length"),
}


class ForcedCounts(NamedTuple):
    """What was seen [K]: how many rounds had at least 1, 2, .. drafts, and how many of them accepted so many.

    `reached` are those that had so many and accepted all before; `more` drafts were accepted behind the last position.
    """

    tried: tuple[int, ...]
    reached: tuple[int, ...]
    accepted: tuple[int, ...]
    rounds: int
    more: int = 0

    @property
    def length(self) -> float:
        """Return the acceptance length, the target's token among it."""
        return 1 + sum(self.accepted) / max(1, self.rounds)


def forced_in_log(log: Sequence[LoggedText], steps: int) -> ForcedCounts:
    """Return what the first rounds of each text of a log show: as many as it has whatever is accepted in them.

    How many rounds a text has depends on what they accept, and its last one is cut; the first ones are no such choice.
    """
    whole = [text.rounds[: sum(len(one.emitted) for one in text.rounds) // (steps + 1)] for text in log]
    rounds = [(one.asked, len(one.emitted) - 1) for of_text in whole for one in of_text if one.asked]
    return ForcedCounts(
        tuple(sum(asked > place for asked, _ in rounds) for place in range(steps)),
        tuple(sum(asked > place <= accepted for asked, accepted in rounds) for place in range(steps)),
        tuple(sum(accepted > place for _, accepted in rounds) for place in range(steps)),
        len(rounds),
        sum(max(0, accepted - steps) for _, accepted in rounds),
    )


def forced_in_counts(counts: ObservedCounts, steps: int) -> ForcedCounts:
    """Return what counters show: every round with drafts is taken to have had all of them."""
    accepted, drafts = (*counts.accepted, *[0] * steps)[:steps], counts.drafts
    reached = (drafts, *accepted)[:steps]
    return ForcedCounts((drafts,) * steps, reached, accepted, drafts, sum(counts.accepted[steps:]))


class Promise(NamedTuple):
    """What was promised: the share of rounds that accept at least 1, 2, .. drafts; most rounds that share a draw."""

    mode: ForcedBy
    rates: Rates
    batch: int = 1

    @property
    def length(self) -> float:
        return 1 + sum(self.rates)


def forced(promise: Promise, seen: ForcedCounts, others: Sequence[tuple[str, Rates]] = ()) -> ForcedReport:
    """Hold what was seen to what was promised; `others` are promises that explain it if that one does not."""
    positions = _positions(promise, seen)
    holds = all(one.holds for one in positions) and not seen.more
    noticed = _noticeable(promise, seen)
    verdict = (
        Outcome.FAIL if not holds else Outcome.PASS if noticed <= _ENOUGH and seen.rounds else Outcome.INCONCLUSIVE
    )
    fits = () if holds else tuple(name for name, rates in others if _keeps(promise._replace(rates=rates), seen))
    report = ForcedReport(
        verdict=verdict,
        says="",
        mode=promise.mode,
        promised=promise.length,
        observed=seen.length,
        rounds=seen.rounds,
        rates=promise.rates,
        false_alarms=AUDIT_FALSE_ALARMS,
        noticeable=noticed,
        positions=positions,
        fits=fits,
    )
    return _said(report, seen)


def _keeps(promise: Promise, seen: ForcedCounts) -> bool:
    return not seen.more and all(one.holds for one in _positions(promise, seen))


def _positions(promise: Promise, seen: ForcedCounts) -> tuple[ForcedPosition, ...]:
    """Return each position, of those rounds in which the drafts before it were accepted."""
    before, found = 1.0, list[ForcedPosition]()
    alarm = AUDIT_FALSE_ALARMS / max(1, sum(_CLOSE < one < 1 - _CLOSE for one in _conditional(promise.rates)))
    for place, rate in enumerate(promise.rates):
        reached, accepted = seen.reached[place], seen.accepted[place]
        share = rate / before if before > _CLOSE else 0.0
        is_exact = not _CLOSE < share < 1 - _CLOSE
        if promise.batch > 1 and not is_exact:
            # A bound needs no condition, and the draws that rounds share are of the whole length.
            reached, share = seen.tried[place], rate
        p = float(accepted == round(share) * reached) if is_exact else _chance(accepted, reached, share, promise.batch)
        found.append(
            ForcedPosition(
                position=place + 1,
                kind="exact" if is_exact else "chance",
                promised=share,
                tried=reached,
                accepted=accepted,
                p=p,
                holds=p >= alarm,
            )
        )
        before = rate
    return tuple(found)


def _conditional(rates: Rates) -> list[float]:
    pairs = zip(rates, (1.0, *rates), strict=False)
    return [rate / before if before > _CLOSE else 0.0 for rate, before in pairs]


def _chance(accepted: int, tried: int, share: float, batch: int) -> float:
    """Return how probable a count as far from its mean is, at most.

    Of independent draws it is twice the smaller tail of the binomial distribution, exactly. Of draws that at most
    `batch` rounds share it is Hoeffding's bound for sums of terms of at most that size: 2 exp(-2 d^2 / (batch tried)).
    """
    if not tried:
        return 1.0
    if batch > 1:
        return min(1.0, 2 * math.exp(-2 * (accepted - tried * share) ** 2 / (batch * tried)))
    return min(1.0, 2 * _tail_from(accepted, tried, share))


def _tail_from(count: int, tried: int, share: float) -> float:
    """Return the binomial probability of `count` and all beyond it, away from the mean."""
    ways = math.lgamma(tried + 1) - math.lgamma(count + 1) - math.lgamma(tried - count + 1)
    term = math.exp(ways + count * math.log(share) + (tried - count) * math.log1p(-share))
    odds, step, total = share / (1 - share), 1 if count > tried * share else -1, 0.0
    while term > total * 1e-17:
        total += term
        term *= (tried - count) / (count + 1) * odds if step > 0 else count / (tried - count + 1) / odds
        count += step
    return total


def _noticeable(promise: Promise, seen: ForcedCounts) -> float:
    """Return the least difference of the mean that is noticed in nine of ten cases, of the position that has most."""
    inner = [one for one in _positions(promise, seen) if one.kind == "chance"]
    if not inner:
        return 0.0
    tail, rounds = AUDIT_FALSE_ALARMS / len(inner), max(1, seen.rounds)
    if promise.batch > 1:
        width = math.sqrt(math.log(2 / tail) / 2) + _NOTICED / 2
        return max(width * math.sqrt(promise.batch * one.tried) / rounds for one in inner)
    needed = _deviate(tail) + _NOTICED
    return max(needed * math.sqrt(one.promised * (1 - one.promised) * one.tried) / rounds for one in inner)


def _deviate(tail: float) -> float:
    """Return the normal deviate beyond which, either way, lies `tail`."""
    low, high = 0.0, 40.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erfc(middle / math.sqrt(2)) > tail else (low, middle)
    return low


def _said(report: ForcedReport, seen: ForcedCounts) -> ForcedReport:
    """Return the report with its result in one sentence."""
    told = f"accepted length {report.observed:.2f}, promised {report.promised:.2f}, in {report.rounds} rounds"
    if report.verdict is Outcome.PASS:
        return replace(report, says=f"{told}: as promised")
    if report.verdict is Outcome.INCONCLUSIVE and not report.rounds:
        return replace(report, says="no round with drafts was seen")
    if report.verdict is Outcome.INCONCLUSIVE:
        enough = math.ceil(report.rounds * (report.noticeable / _ENOUGH) ** 2)
        why = f"only a mean that is off by {report.noticeable:.2f} would have been noticed; give {enough} rounds"
        return replace(report, says=f"{told}: {why}")
    broken = [_broken(one) for one in report.positions if not one.holds]
    broken += [f"{seen.more} drafts more than there are were accepted"] if seen.more else []
    fits = f"; it is as of {' or '.join(report.fits)}" if report.fits else ""
    return replace(report, says=f"{told}: {'; '.join(broken)}{fits}")


def _broken(one: ForcedPosition) -> str:
    told = f"draft {one.position} was accepted in {one.accepted} of {one.tried} rounds"
    if one.kind == "exact":
        return f"{told}, and in {'all' if one.promised > 0.5 else 'none'} it is to be"
    return f"{told}, where {one.promised:.3f} of them are promised (p = {one.p:.2g})"
