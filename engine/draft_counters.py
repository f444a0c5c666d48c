"""Counters that an engine keeps for its observers: the drafts that it has verified and accepted so far."""

from __future__ import annotations

from collections.abc import Sequence


class DraftCounters:
    """Counters of a whole run."""

    def __init__(self, steps: int) -> None:
        self.rounds = self.drafts = 0
        self._ended_at = [0] * (steps + 1)

    def count(self, num_drafts: Sequence[int], correct_len: Sequence[int]) -> None:
        """Add the rows of a verify; one without drafts adds nothing."""
        self.rounds += sum([drafts > 0 for drafts in num_drafts])
        self.drafts += sum(num_drafts)
        for right in correct_len:
            self._ended_at[right] += 1

    @property
    def accepted_at(self) -> tuple[int, ...]:
        """Return how many drafts were accepted at each place of a round."""
        return tuple(sum(self._ended_at[place + 1 :]) for place in range(len(self._ended_at) - 1))

    @property
    def accepted(self) -> int:
        return sum(self.accepted_at)
