"""The rounds of a log beside those that a simulated draft plays: which of them went as it says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from draftproof.properties.values.round_log import LoggedRound, LoggedText
from draftproof.reference.audit.play import Played

SameRounds = Sequence[Sequence[bool]]
"""For each text, whether each of its rounds went as it was played."""


def same_rounds(played: Sequence[Sequence[Played]], log: Sequence[LoggedText]) -> SameRounds:
    """Return which rounds went as played: the drafts of the log, if it has them, and what was emitted."""
    return [
        [_is_same(one, logged) for one, logged in zip(of_text, text.rounds, strict=True)]
        for of_text, text in zip(played, log, strict=True)
    ]


def gains(one: SameRounds, other: SameRounds) -> np.ndarray:
    """Return for each text how many rounds more went as `one` says than as `other` does."""
    return np.array([sum(a) - sum(b) for a, b in zip(one, other, strict=True)])


def explained(right: SameRounds, same: SameRounds) -> int:
    """Return how many rounds went as a mistake says and not as defined."""
    both = zip(right, same, strict=True)
    return sum(not as_defined and it for a, b in both for as_defined, it in zip(a, b, strict=True))


def _is_same(one: Played, logged: LoggedRound) -> bool:
    return one.emits == logged.emitted and (logged.drafts is None or one.drafts == logged.drafts)
