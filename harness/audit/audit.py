"""Compare what an engine got accepted with what it should, and say which known mistake explains a difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace

from draftproof.harness.audit.compared import (
    LEAST_ALIKE,
    MOST_ROUNDED,
    SameRounds,
    explained,
    extra_matching_rounds,
    has_only_accepted_drafts,
    idle_rounds,
    same_rounds,
)
from draftproof.harness.audit.says import Result, Uncounted, Unnoticed, UnnoticedInLog, Unrejected, says
from draftproof.harness.audit.statistics import (
    AUDIT_FALSE_ALARMS,
    LEAST_PROMPTS,
    Tested,
    by_chance,
    enough_prompts,
    noticeable,
    of_counts,
    of_rounds,
    sides,
    spread,
)
from draftproof.harness.audit.tally import OneRound, Tally, by_prompt, tally
from draftproof.properties.formats.audit import AuditReport, Explanation, ObservedCounts, PositionRate
from draftproof.properties.formats.round_log import LoggedText
from draftproof.properties.values.drafts import Algorithm
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.audit.mistakes import AS_DEFINED, Mistake, definition, mistakes
from draftproof.reference.audit.play import Played

_SURE = 0.05
"""Counts that are less probable are no PASS, even where they are no alarm."""
_FEW = 10
"""This many rounds of a log that went otherwise are investigated, however small their share is."""
_OF_A_LOG = 0.5
"""A log has two kinds of test, which share the false alarms: how much is accepted, and which draft proposed it."""


class Simulator(Protocol):
    """Plays a draft, right or with a mistake, over the text of each of the prompts."""

    prompts: Sequence[tuple[int, ...]]
    other_texts: int

    def play(self, mistake: Mistake) -> Sequence[Sequence[Played]]: ...


class Seen(NamedTuple):
    """What was seen of an engine: the log of its rounds, or counts; one of them, or neither."""

    log: tuple[LoggedText, ...] | None = None
    counts: ObservedCounts | None = None


class Question(NamedTuple):
    """What is audited: the draft, the number of positions, what was observed, and whether all mistakes are tried."""

    algorithm: Algorithm
    steps: int
    observed: Seen
    every_mistake: bool
    seed: int


def audit(question: Question, simulator: Simulator, advance: Callable[[], None] = lambda: None) -> AuditReport:
    """Answer it: expectation and, if something was observed, a verdict; mistakes are tried if it falls short."""
    comparison = _Comparison(question, simulator)
    test = comparison.test(comparison.expected)
    advance()
    found: tuple[Simulated, ...] = ()
    if question.every_mistake or comparison.alarms(test) or comparison.off >= _FEW or comparison.otherwise:
        found = comparison.simulated(advance)
    return comparison.report(comparison.verdict(test, found), test, found)


class Simulated(NamedTuple):
    """A known mistake, simulated; `sides`: how probable it is that a log of an engine without it sides as much."""

    told: Explanation
    sides: float


class _Comparison:
    def __init__(self, question: Question, simulator: Simulator) -> None:
        self._question, self._simulator = question, simulator
        observed = question.observed
        self._idle_count = observed.log is not None or (
            observed.counts is not None and observed.counts.rounds is not None
        )
        self._seen = None if observed.log is None else self._observed_tally(observed.log)
        self._right = simulator.play(definition(question.algorithm))
        self.expected = self._tally(self._right)
        self._same = self._same_rounds(self._right)

    @property
    def off(self) -> int:
        """Return how many rounds of a log went otherwise."""
        return 0 if self._same is None else sum(one.count(False) for one in self._same)

    @property
    def idle(self) -> int:
        """Return how many rounds of a log went otherwise, if each of them has no drafts where it should have some."""
        log, right = self._question.observed.log, self._right
        return 0 if log is None else idle_rounds(log, same_rounds(right, log))

    @property
    def otherwise(self) -> int:
        """Return how many rounds of a log went otherwise, if they are more than rounding may send there (S-AUDIT-4)."""
        return self.off if self.off > (1 - LEAST_ALIKE) * sum(map(len, self._same or ())) else 0

    @property
    def is_without_drafts(self) -> bool:
        """Return whether a log shows not one draft: it may be of an engine without any (S-SUBJECT-6)."""
        log = self._question.observed.log
        return log is not None and not any(one.asked for text in log for one in text.rounds)

    @property
    def uncounted(self) -> Uncounted | None:
        """Return what counts are of, if by more than chance and the ends of texts it is not what is played."""
        counts, tallied = self._question.observed.counts, self.expected
        if counts is None or self.rounds is None:
            return None
        seen, played = self.rounds + sum(counts.accepted), tallied.rounds + tallied.accepted.sum(axis=1)
        ends = len(self._right) * self._question.steps
        if abs(int(played.sum()) - seen) <= ends + by_chance(played):
            return None
        whole = counts.rounds is not None
        return Uncounted(self.rounds, seen, int(tallied.rounds.sum()), int(played.sum()), with_idle=whole)

    @property
    def is_elsewhere(self) -> bool:
        """Return whether more rounds of a log went otherwise than rounding can send there."""
        return self.otherwise > MOST_ROUNDED * sum(map(len, self._same or ()))

    def unnoticed(self, test: Tested | None) -> Unnoticed | UnnoticedInLog | Unrejected | None:
        """Return what would have been noticed, if that is too much, or leaves what was seen open (S-AUDIT-14)."""
        tallied, seed, log = self.expected, self._question.seed, self._question.observed.log
        if log is not None and has_only_accepted_drafts(log, self._question.steps):
            return Unrejected(self._question.steps)
        if self._seen is not None:
            return UnnoticedInLog(tallied.mean) if self._passes_without_drafts(self._seen) else None
        if self.rounds is None or test is None or self.rates is None:
            return None
        least, differs = noticeable(tallied, self.rounds, seed), abs(tallied.mean - float(self.rates.sum()))
        if least < tallied.mean and test.mean >= _SURE:
            return None
        is_left_open = least < tallied.mean
        enough = enough_prompts(tallied, self.rounds, seed, differs if is_left_open else tallied.mean)
        return Unnoticed(tallied.mean, least, differs if is_left_open else None, enough)

    def _passes_without_drafts(self, seen: Tally) -> bool:
        """Return whether a log that has no tokens of drafts would pass, too, if none of them had been accepted."""
        if any(one.drafts is not None for text in self._question.observed.log or () for one in text.rounds):
            return False
        none = Tally(seen.rounds, np.zeros_like(seen.accepted))
        off = sum(one.accepted > 0 for text in self._right for one in text)
        return off <= (1 - LEAST_ALIKE) * int(seen.rounds.sum()) and not self.alarms(of_rounds(self.expected, none))

    @property
    def prompts(self) -> int:
        """Return how many prompts have a round after their own, each once: others say nothing."""
        return int(np.count_nonzero(self.expected.rounds))

    def alarms(self, test: Tested | None) -> bool:
        """Return whether as much is accepted hardly ever."""
        return test is not None and test.alarms(1.0 if self._same is None else _OF_A_LOG)

    @property
    def rates(self) -> np.ndarray | None:
        """Return what was observed [K]."""
        counts = self._question.observed.counts
        if self._seen is not None:
            return self._seen.rates
        return None if counts is None else _rates(counts, self._question.steps)

    @property
    def rounds(self) -> int | None:
        counts = self._question.observed.counts
        if self._seen is not None:
            return int(self._seen.rounds.sum())
        return None if counts is None else counts.rounds or counts.drafts

    def test(self, against: Tally) -> Tested | None:
        """Tested what was observed against a tally."""
        if self._seen is not None:
            return of_rounds(against, self._seen)
        rates, rounds = self.rates, self.rounds
        if rates is None or rounds is None:
            return None
        return of_counts(against, rates, rounds, self._question.seed)

    def verdict(self, test: Tested | None, found: Sequence[Simulated]) -> Outcome | None:
        if test is None:
            return None
        if self.alarms(test) or self._sided(found) is not None:
            return Outcome.INCONCLUSIVE if self._may_idle(found) else Outcome.FAIL
        is_seen = self.uncounted is None and self.unnoticed(test) is None and not self.is_without_drafts
        if self.prompts < LEAST_PROMPTS or not is_seen:
            return Outcome.INCONCLUSIVE
        if self.is_elsewhere:
            return Outcome.INCONCLUSIVE if self._may_idle(found) else Outcome.FAIL
        return Outcome.INCONCLUSIVE if self.otherwise else Outcome.PASS

    def _may_idle(self, found: Sequence[Simulated]) -> bool:
        """Return whether rounds without drafts are all that went otherwise, and no mistake has these and the others."""
        most = LEAST_ALIKE * sum(map(len, self._same or ()))
        known = any((one.told.same_rounds or 0) >= most and one.told.name != AS_DEFINED for one in found)
        return self.idle > 0 and not known

    def simulated(self, advance: Callable[[], None]) -> tuple[Simulated, ...]:
        """Return every known mistake, the likeliest first."""
        algorithm = self._question.algorithm
        tried, weights, agreed = list[Simulated](), list[float](), list[SameRounds]()
        for mistake in (definition(algorithm), *mistakes(algorithm)):
            played = self._simulator.play(mistake)
            tallied = self._tally(played)
            test = self.test(tallied)
            same = self._same_rounds(played)
            agreed.append(same or ())
            weights.append(0.0 if test is None else test.log_likelihood if same is None else self._weight(same))
            told = Explanation(
                name=mistake.name,
                expected=tallied.mean,
                positions=tuple(map(float, tallied.rates)),
                p=None if test is None else test.mean,
                ruled_out=test is not None and test.alarms(),
                same_rounds=None if same is None else sum(map(sum, same)),
                explains=None if same is None else explained(self._same or (), same),
            )
            tried.append(Simulated(told, 1.0 if same is None else sides(extra_matching_rounds(same, self._same or ()))))
            advance()
        if self.rates is None:
            return tuple(tried)
        shares = np.exp(np.array(weights) - max(weights))
        shares /= shares.sum()
        order = sorted(range(len(tried)), key=lambda at: (-shares[at], at))
        best = agreed[order[0]]
        return tuple(
            one._replace(
                told=replace(
                    one.told,
                    likelihood=float(shares[at]),
                    ruled_out=one.told.ruled_out
                    or bool(best and sides(extra_matching_rounds(best, agreed[at])) < AUDIT_FALSE_ALARMS),
                )
            )
            for at, one in ((at, tried[at]) for at in order)
        )

    def _sided(self, found: Sequence[Simulated]) -> float | None:
        """Return how probable it is that a log agrees this much with some mistake, if that is an alarm."""
        least = len(found) * min((one.sides for one in found), default=1.0)
        return least if found and least < _OF_A_LOG * AUDIT_FALSE_ALARMS else None

    def report(self, outcome: Outcome | None, test: Tested | None, found: tuple[Simulated, ...]) -> AuditReport:
        rates, rounds, seed = self.rates, self.rounds, self._question.seed
        around = spread(self.expected, seed)
        positions = tuple(
            PositionRate(
                position=k + 1,
                expected=float(self.expected.rates[k]),
                low=float(around.low[k]),
                high=float(around.high[k]),
                observed=None if rates is None else float(rates[k]),
                p=None if test is None else float(test.positions[k]),
            )
            for k in range(self._question.steps)
        )
        observed = None if rates is None else float(rates.sum())
        p = None if test is None else test.mean
        told = tuple(one.told for one in found)
        result = Result(
            self.expected.mean,
            observed,
            p,
            self.prompts,
            copies=len(self._right) - len(self.expected.rounds),
            uncounted=self.uncounted,
            unnoticed=self.unnoticed(test),
            other_texts=self._simulator.other_texts,
            is_without_drafts=self.is_without_drafts,
        )
        if self._same is not None:
            result = result._replace(
                rounds=sum(map(len, self._same)), off=self.off, sided=self._sided(found), idle=self.idle
            )
        return AuditReport(
            verdict=outcome,
            says=says(result, outcome, told, falls_short=self.alarms(test)),
            expected=self.expected.mean,
            observed=observed,
            p=p,
            false_alarms=AUDIT_FALSE_ALARMS,
            noticeable=None if self._seen is not None or rounds is None else noticeable(self.expected, rounds, seed),
            prompts=len(self._right),
            rounds=int(self.expected.rounds.sum()),
            observed_rounds=rounds,
            positions=positions,
            explanations=told,
            same_rounds=None if self._same is None else sum(map(sum, self._same)),
            other_texts=self._simulator.other_texts,
        )

    def _tally(self, played: Sequence[Sequence[Played]]) -> Tally:
        texts = [[OneRound(len(one.drafts), one.accepted) for one in text] for text in played]
        return tally(by_prompt(self._simulator.prompts, texts), self._question.steps, idle_count=self._idle_count)

    def _observed_tally(self, log: tuple[LoggedText, ...]) -> Tally:
        texts = [[OneRound(one.asked, len(one.emitted) - 1) for one in text.rounds] for text in log]
        return tally(by_prompt(self._simulator.prompts, texts), self._question.steps, idle_count=True)

    def _same_rounds(self, played: Sequence[Sequence[Played]]) -> SameRounds | None:
        log = self._question.observed.log
        return None if log is None else by_prompt(self._simulator.prompts, same_rounds(played, log))

    def _weight(self, same: SameRounds) -> float:
        """Return the logarithm of how likely the rounds of a log are."""
        others = 1 + self._question.steps
        right, rounds = sum(map(sum, same)), sum(map(len, same))
        yes, no = np.log(LEAST_ALIKE + (1 - LEAST_ALIKE) / others), np.log((1 - LEAST_ALIKE) / others)
        return float(right * yes + (rounds - right) * no)


def _rates(counts: ObservedCounts, steps: int) -> np.ndarray:
    accepted = [*counts.accepted, *[0] * steps][:steps]
    return np.array(accepted) / (counts.rounds or counts.drafts)
