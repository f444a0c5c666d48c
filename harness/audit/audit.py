"""Compare what an engine got accepted with what it should, and say which known mistake explains a difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from draftproof.harness.audit.statistics import (
    FALSE_ALARMS,
    LEAST_PROMPTS,
    Tested,
    noticeable,
    of_counts,
    of_rounds,
    spread,
)
from draftproof.harness.audit.tally import OneRound, Tally, tally
from draftproof.properties.values.audit import AuditReport, Explanation, ObservedCounts, PositionRate
from draftproof.properties.values.drafts import Algorithm
from draftproof.properties.values.round_log import LoggedText
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.audit.mistakes import AS_DEFINED, Mistake, definition, mistakes
from draftproof.reference.audit.play import Played

_SAME = 0.98
"""Of the rounds of a log, the share that go as they are played, if they are played right; the rest is rounding."""


class Simulator(Protocol):
    """Plays a draft, right or with a mistake, over every text."""

    other_texts: int

    def play(self, mistake: Mistake) -> Sequence[Sequence[Played]]: ...


class Seen(NamedTuple):
    """What was seen of an engine: the log of its rounds, or counts; one of them, or neither."""

    log: tuple[LoggedText, ...] | None = None
    counts: ObservedCounts | None = None


class Question(NamedTuple):
    """What is asked: of which draft, with how many positions, what was seen, whether all mistakes are to be tried."""

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
    outcome = comparison.verdict(test)
    found: tuple[Explanation, ...] = ()
    if question.every_mistake or outcome is Outcome.FAIL or comparison.otherwise:
        found = comparison.explanations(advance)
    return comparison.report(outcome, test, found)


class _Comparison:
    def __init__(self, question: Question, simulator: Simulator) -> None:
        self._question, self._simulator = question, simulator
        observed = question.observed
        self._idle_count = observed.log is not None or (
            observed.counts is not None and observed.counts.rounds is not None
        )
        self._seen = _observed_tally(observed.log, question.steps) if observed.log is not None else None
        self._right = simulator.play(definition(question.algorithm))
        self.expected = self._tally(self._right)
        self._same = None if observed.log is None else _same(self._right, observed.log)

    @property
    def otherwise(self) -> int:
        """Return how many rounds of a log went otherwise, if they are more than rounding may send there (S-AUDIT-4)."""
        off = 0 if self._same is None else self._same.count(False)
        return off if off > (1 - _SAME) * len(self._same or ()) else 0

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

    def verdict(self, test: Tested | None) -> Outcome | None:
        if test is None:
            return None
        if test.alarms:
            return Outcome.FAIL
        is_enough = len(self.expected.rounds) >= LEAST_PROMPTS and not self.otherwise
        return Outcome.PASS if is_enough else Outcome.INCONCLUSIVE

    def explanations(self, advance: Callable[[], None]) -> tuple[Explanation, ...]:
        """Return every known mistake, the likeliest first."""
        algorithm = self._question.algorithm
        tried, weights = list[Explanation](), list[float]()
        for mistake in (definition(algorithm), *mistakes(algorithm)):
            played = self._simulator.play(mistake)
            tallied = self._tally(played)
            test = self.test(tallied)
            weights.append(0.0 if test is None else self._weight(played, test))
            tried.append(
                Explanation(
                    name=mistake.name,
                    expected=tallied.mean,
                    positions=tuple(map(float, tallied.rates)),
                    p=None if test is None else test.mean,
                    ruled_out=test is not None and test.alarms,
                )
            )
            advance()
        if self.rates is None:
            return tuple(tried)
        shares = np.exp(np.array(weights) - max(weights))
        shares /= shares.sum()
        order = sorted(range(len(tried)), key=lambda at: (-shares[at], at))
        return tuple(_with_likelihood(tried[at], float(shares[at])) for at in order)

    def report(self, outcome: Outcome | None, test: Tested | None, found: tuple[Explanation, ...]) -> AuditReport:
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
        return AuditReport(
            verdict=outcome,
            says=says(self.expected.mean, observed, p, outcome, found, len(self.expected.rounds), self.otherwise),
            expected=self.expected.mean,
            observed=observed,
            p=p,
            false_alarms=FALSE_ALARMS,
            noticeable=None if self._seen is not None or rounds is None else noticeable(self.expected, rounds, seed),
            prompts=len(self.expected.rounds),
            rounds=int(self.expected.rounds.sum()),
            observed_rounds=rounds,
            positions=positions,
            explanations=found,
            same_rounds=None if self._same is None else sum(self._same),
            other_texts=self._simulator.other_texts,
        )

    def _tally(self, played: Sequence[Sequence[Played]]) -> Tally:
        texts = [[OneRound(len(one.drafts), one.accepted) for one in text] for text in played]
        return tally(texts, self._question.steps, idle_count=self._idle_count)

    def _weight(self, played: Sequence[Sequence[Played]], test: Tested) -> float:
        """Return the logarithm of how likely what was observed is: of a log by its rounds, else by all rates."""
        log = self._question.observed.log
        if log is None:
            return test.log_likelihood
        same = _same(played, log)
        others = 1 + self._question.steps
        return float(sum(np.log(_SAME + (1 - _SAME) / others) if one else np.log((1 - _SAME) / others) for one in same))


def says(
    expected: float,
    observed: float | None,
    p: float | None,
    outcome: Outcome | None,
    found: Sequence[Explanation],
    n: int,
    otherwise: int = 0,
) -> str:
    """Return the result in one sentence; `otherwise` rounds of a log went otherwise, though as many were accepted."""
    if observed is None or p is None:
        return f"a right engine gets {expected:.2f} drafts accepted a round"
    told = f"observed {observed:.2f} accepted a round, expected {expected:.2f}"
    if outcome is Outcome.PASS:
        return f"{told}: as it should be"
    if outcome is Outcome.INCONCLUSIVE and otherwise:
        known = [one for one in found[:1] if one.name != AS_DEFINED]
        most = f"likeliest: {known[0].name}" if known else "no known mistake explains them"
        return f"{told}: no difference that {n} prompts could show, but {otherwise} rounds went otherwise; {most}"
    if outcome is Outcome.INCONCLUSIVE:
        return f"{told}: no difference that {n} prompts could show; give at least {LEAST_PROMPTS}"
    told += f" ({chance(p)})"
    possible = [one for one in found if not one.ruled_out]
    if not possible:
        return f"{told}; none of the known mistakes explains it"
    return f"{told}; explained by: {', '.join(f'{one.name} ({one.expected:.2f})' for one in possible[:3])}"


def chance(p: float) -> str:
    """Return a probability as it is told."""
    return "p < 1e-12" if p < 1e-12 else f"p = {p:.2g}"


def _with_likelihood(one: Explanation, share: float) -> Explanation:
    from msgspec.structs import replace

    return replace(one, likelihood=share)


def _observed_tally(log: tuple[LoggedText, ...], steps: int) -> Tally:
    texts = [[OneRound(one.asked, len(one.emitted) - 1) for one in text.rounds] for text in log]
    return tally(texts, steps, idle_count=True)


def _rates(counts: ObservedCounts, steps: int) -> np.ndarray:
    accepted = [*counts.accepted, *[0] * steps][:steps]
    return np.array(accepted) / (counts.rounds or counts.drafts)


def _same(played: Sequence[Sequence[Played]], log: tuple[LoggedText, ...] | None) -> list[bool]:
    """Return for each round of a log whether it went as played: its drafts if it has them, else how many were right."""
    return [
        one.drafts == logged.drafts if logged.drafts is not None else one.accepted == len(logged.emitted) - 1
        for of_text, text in zip(played, log or (), strict=True)
        for one, logged in zip(of_text, text.rounds, strict=True)
    ]
