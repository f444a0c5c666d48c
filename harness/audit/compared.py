"""The rounds of a log beside those that a simulated draft plays: which of them went as it says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from draftproof.properties.formats.round_log import LoggedRound, LoggedText
from draftproof.properties.values.drafts import Algorithm, proposing
from draftproof.reference.audit.play import Played

LEAST_ALIKE = 0.98
"""At least this share of the rounds go as played if they are played right; rounding explains the rest."""
MOST_ROUNDED = 0.15
"""Of rounds whose drafts are as they should be no rounding sends a larger share elsewhere."""
SameRounds = Sequence[Sequence[bool]]
"""For each text, or prompt, whether each of its rounds went as it was played."""


def same_rounds(played: Sequence[Sequence[Played]], log: Sequence[LoggedText]) -> SameRounds:
    """Return which rounds went as played: the drafts of the log, if it has them, and what was emitted."""
    return [
        [_is_same(one, logged) for one, logged in zip(of_text, text.rounds, strict=True)]
        for of_text, text in zip(played, log, strict=True)
    ]


def extra_matching_rounds(one: SameRounds, other: SameRounds) -> np.ndarray:
    """Return for each prompt how many rounds more went as `one` says than as `other` does."""
    return np.array([sum(a) - sum(b) for a, b in zip(one, other, strict=True)])


def explained(right: SameRounds, same: SameRounds) -> int:
    """Return how many rounds went as a mistake says and not as defined."""
    both = zip(right, same, strict=True)
    return sum(not as_defined and it for a, b in both for as_defined, it in zip(a, b, strict=True))


def _is_same(one: Played, logged: LoggedRound) -> bool:
    return one.emits == logged.emitted and (logged.drafts is None or one.drafts == logged.drafts)


def as_counted(log: Sequence[LoggedText], algorithm: Algorithm, steps: int) -> tuple[LoggedText, ...]:
    """Return a log with `own_count` where it is so: rounds with room for `steps` drafts have different numbers of them.

    No limit explains that: the engine stops where it is not sure, and may begin no draft at all. A draft that looks
    tokens up has as many as it finds.
    """
    own = algorithm not in proposing("lookup") and len(_numbers_of_drafts(log, steps)) > 1
    return tuple(one._replace(own_count=own) for one in log)


def _numbers_of_drafts(log: Sequence[LoggedText], steps: int) -> set[int]:
    seen: set[int] = set()
    for text in log:
        left = sum(len(one.emitted) for one in text.rounds)
        for one in text.rounds:
            if left > steps + 1 and one.asked and (one.drafts is not None or one.num_drafts is not None):
                seen.add(one.asked)
            left -= len(one.emitted)
    return seen


def idle_rounds(log: Sequence[LoggedText], same: SameRounds) -> int:
    """Return how many rounds have no drafts, if no other one went otherwise than it was played; else 0."""
    both = [
        (one, as_played)
        for text, rounds in zip(log, same, strict=True)
        for one, as_played in zip(text.rounds, rounds, strict=True)
    ]
    off = [one for one, as_played in both if not as_played]
    return len(off) if all(one.asked == 0 for one in off) else 0


def has_only_accepted_drafts(log: Sequence[LoggedText], steps: int) -> bool:
    """Return whether a log has, of what was verified, the drafts that were accepted alone (S-AUDIT-14).

    A draft that is always right has none to reject either; but then only last rounds have fewer drafts.
    """
    told = [[one for one in text.rounds if one.drafts is not None or one.num_drafts is not None] for text in log]
    if any(one.asked >= len(one.emitted) for text in told for one in text):
        return False
    return any(one.asked < steps for text in told for one in text[:-1])
