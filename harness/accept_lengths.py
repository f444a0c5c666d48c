"""Acceptance lengths as everybody tells them: 1 + accepted drafts / rounds with drafts (S-AUDIT-16)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.formats.audit import ObservedCounts
from draftproof.properties.formats.golden import GoldenCell
from draftproof.properties.formats.judged_log import LoggedRun
from draftproof.properties.formats.round_log import LoggedText
from draftproof.properties.lib.base import Value
from draftproof.properties.lib.sequences import common_length
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.trace import Key
from draftproof.properties.values.verdict import Outcome, Verdict

LENGTH_CONTRACT = "accept.length"


class LengthRule(NamedTuple):
    """The least share of an acceptance length that is asked for: of a golden one, or (None) of what is exact."""

    at_least: float
    golden: GoldenCell | None = None


class JudgedLength(Value, frozen=True, kw_only=True):
    """An acceptance length beside the one that is expected, of so many `rounds`; `of` says whose that is."""

    verdict: Outcome
    observed: float
    expected: float
    at_least: float
    rounds: int
    of: str

    @property
    def share(self) -> float:
        """Return how much of what is expected was observed."""
        return self.observed / self.expected

    @property
    def says(self) -> str:
        """Return it in words."""
        told = f"accepted length {self.observed:.2f} in {self.rounds} rounds, {self.expected:.2f} {self.of}"
        return f"{told}: {self.share:.1%}, asked for {self.at_least:.1%}"

    def contract(self, requests: int) -> Verdict:
        """Return it as the verdict of a contract on so many requests."""
        missing = () if self.rounds else ("rounds with drafts >= 1",)
        reason = f"{self.share:.1%} of {self.expected:.2f}" if self.verdict is Outcome.FAIL else ""
        return Verdict(name=LENGTH_CONTRACT, verdict=self.verdict, scenarios=requests, missing=missing, reason=reason)


class SeenLength(NamedTuple):
    """What an engine accepted: drafts, and rounds that had some, of at most `steps` drafts (None: nobody told)."""

    accepted: int
    rounds: int
    steps: int | None

    @property
    def length(self) -> float:
        """Return the acceptance length, the target's token among it."""
        return 1 + self.accepted / max(1, self.rounds)


def judged_length(rule: LengthRule, seen: SeenLength, expected: float, of: str) -> JudgedLength:
    """Return what a length comes to: a PASS is at least the share that is asked for; without rounds nothing is said."""
    passes = seen.length >= rule.at_least * expected
    return JudgedLength(
        verdict=Outcome.INCONCLUSIVE if not seen.rounds else Outcome.PASS if passes else Outcome.FAIL,
        observed=seen.length,
        expected=expected,
        at_least=rule.at_least,
        rounds=seen.rounds,
        of=of,
    )


class LengthsOfRuns:
    """Adds up, request by request of a log, what was accepted and what a right draft gets accepted in the same rounds.

    That is as many of its drafts as the text goes on with; a round counts if the text is long enough to tell.
    """

    def __init__(self) -> None:
        self._rounds = self._accepted = self._right = 0

    def add(self, run: LoggedRun, ran: Evidence) -> None:
        """Add a request, with what the reference proposes after its text."""
        proposed = ran.reference.typed("propose.tokens", TokenIds)
        tokens = [token for one in run.rounds for token in one.emitted]
        before = 0
        for one, drafts in zip(run.rounds[:-1], run.drafts, strict=False):
            right = proposed.get(Key(0, one.round))
            following = tokens[before : before + len(drafts)]
            if drafts and right is not None and len(following) == len(drafts):
                self._rounds += 1
                self._accepted += len(one.emitted) - 1
                self._right += common_length(right, following)
            before += len(one.emitted)

    def judged(self, rule: LengthRule) -> JudgedLength:
        """Return what was accepted beside what is right."""
        expected = 1 + self._right / max(1, self._rounds)
        return judged_length(rule, SeenLength(self._accepted, self._rounds, None), expected, "of a right draft")


def length_of_counts(counts: ObservedCounts) -> SeenLength:
    """Return that of counters."""
    return SeenLength(sum(counts.accepted), counts.drafts, len(counts.accepted))


def length_of_log(log: Sequence[LoggedText]) -> SeenLength:
    """Return that of a log, without the last round of each text, which limits cut."""
    rounds = [one for text in log for one in text.rounds[:-1]]
    is_told = [one.drafts is not None or one.num_drafts is not None for one in rounds]
    with_drafts = [one for one, told in zip(rounds, is_told, strict=True) if one.asked or not told]
    steps = max((one.asked for one, told in zip(rounds, is_told, strict=True) if told), default=None)
    return SeenLength(sum(len(one.emitted) - 1 for one in with_drafts), len(with_drafts), steps)
