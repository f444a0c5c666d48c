"""Counters that an engine keeps for its observers: the drafts that it has verified and accepted so far."""

from __future__ import annotations

from collections.abc import Sequence


class DraftCounters:
    """Counters of a whole run; `accepted_at` has one for each place of a draft in its round."""

    def __init__(self, steps: int) -> None:
        self.rounds, self.drafts, self.accepted = 0, 0, 0
        self.accepted_at = [0] * steps

    def count(self, num_drafts: Sequence[int], correct_len: Sequence[int]) -> None:
        """Add the rows of a verify; one without drafts adds nothing."""
        for drafts, correct in zip(num_drafts, correct_len, strict=True):
            self.rounds += int(drafts > 0)
            self.drafts += drafts
            self.accepted += correct
            for place in range(correct):
                self.accepted_at[place] += 1
