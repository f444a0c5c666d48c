"""The slow simulator: every pass from token zero in float64, straight from the definitions."""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.properties.formats.round_log import LoggedText, Prompt
from draftproof.reference.audit.mistakes import Mistake
from draftproof.reference.audit.pair import AuditedPair, count_mismatches
from draftproof.reference.audit.play import Played, follow, play


class SlowSimulator:
    """Plays a draft over what the target decodes after prompts."""

    other_texts = 0

    def __init__(self, pair: AuditedPair, prompts: Sequence[Prompt], steps: int, budget: int) -> None:
        self._pair, self._steps = pair, steps
        self.prompts: Sequence[tuple[int, ...]] = tuple(one.prompt for one in prompts)
        self._budgets = [one.max_tokens or budget for one in prompts]
        # Drafts of the last round reach beyond the budget.
        self._texts = [
            pair.decode(one.prompt, most + steps + 1) for one, most in zip(prompts, self._budgets, strict=True)
        ]

    def play(self, mistake: Mistake) -> Sequence[Sequence[Played]]:
        """Return the rounds of every text."""
        return [
            play(text, self._pair.player(text, mistake), mistake, self._steps, most)
            for text, most in zip(self._texts, self._budgets, strict=True)
        ]


class SlowFollower:
    """Plays a draft over the texts of a log, in its rounds."""

    def __init__(self, pair: AuditedPair, log: Sequence[LoggedText], steps: int) -> None:
        self._pair, self._log, self._steps = pair, log, steps
        self.prompts: Sequence[tuple[int, ...]] = tuple(one.prompt for one in log)
        self._texts = [pair.read(one) for one in log]
        self.other_texts = sum(count_mismatches(text.tokens, text.own) for text in self._texts)

    def play(self, mistake: Mistake) -> Sequence[Sequence[Played]]:
        """Return the rounds of every text."""
        return [
            follow(text, self._pair.player(text, mistake), mistake, one, self._steps)
            for text, one in zip(self._texts, self._log, strict=True)
        ]
