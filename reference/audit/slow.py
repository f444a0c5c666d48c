"""The slow simulator: every pass from token zero in float64, straight from the definitions."""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.properties.values.round_log import LoggedText, Prompt
from draftproof.reference.audit.mistakes import Mistake
from draftproof.reference.audit.pair import AuditedPair
from draftproof.reference.audit.play import Played, Text, follow, play

_NEAR = 1e-3
"""A token of a log is the target's own if its logit is as near to the best, as a share of the largest."""


class SlowSimulator:
    """Plays a draft over what the target decodes after prompts."""

    other_texts = 0

    def __init__(self, pair: AuditedPair, prompts: Sequence[Prompt], steps: int, budget: int) -> None:
        self._pair, self._steps = pair, steps
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
        self._texts = [pair.read(len(one.prompt), one.tokens) for one in log]
        self.other_texts = sum(map(_others, self._texts))

    def play(self, mistake: Mistake) -> Sequence[Sequence[Played]]:
        """Return the rounds of every text."""
        return [
            follow(text, self._pair.player(text, mistake), mistake, one.rounds, self._steps)
            for text, one in zip(self._texts, self._log, strict=True)
        ]


def _others(text: Text) -> int:
    """Return how many tokens after the prompt are not the target's choice, nor as good within rounding."""
    logits = text.whole.logits[text.prompt - 1 : -1]
    chosen = logits.gather(1, logits.new_tensor(text.tokens[text.prompt :]).long()[:, None])[:, 0]
    below = logits.max(dim=1).values - chosen
    return int((below > _NEAR * logits.abs().max(dim=1).values).sum())
