"""Rounds of one draft over one text: what it proposes, and how much of that is accepted (S-AUDIT-1, S-AUDIT-2).

Losslessness fixes the text, so a draft is played against it and the target is asked for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from draftproof.properties.values.round_log import LoggedRound
from draftproof.reference.audit.mistakes import Mistake
from draftproof.reference.decode import accept
from draftproof.reference.models.target import TargetPass


class Text(NamedTuple):
    """What a request ran: `tokens` are the prompt's `prompt` and what followed, `whole` the target's pass over them."""

    prompt: int
    tokens: tuple[int, ...]
    whole: TargetPass


class Played(NamedTuple):
    """A round: the context before it, the drafts verified, and how many were right."""

    context: int
    drafts: tuple[int, ...]
    accepted: int


class Player(Protocol):
    """A draft at work on one text, round after round; it remembers what a mistake leaves behind."""

    def propose(self, context: int, count: int) -> tuple[int, ...]:
        """Return up to `count` drafts after t_0 .. t_n, n = `context`."""

    def verified(self, drafts: tuple[int, ...], accepted: int) -> None:
        """Say which drafts of the round just proposed were verified, and how many were right."""


def play(text: Text, player: Player, mistake: Mistake, steps: int, budget: int) -> tuple[Played, ...]:
    """Return the rounds in which `budget` tokens are emitted, the last of them uncut (S-AUDIT-2)."""
    context, rounds = text.prompt, list[Played]()
    while context + 1 < text.prompt + budget:
        count = 0 if is_idle(mistake, len(rounds) + 1) else steps - mistake.fewer
        drafts = player.propose(context, count)
        accepted = accept(drafts, text.tokens[context + 1 :])
        player.verified(drafts, accepted)
        rounds.append(Played(context, drafts, accepted))
        context += accepted + 1
    return tuple(rounds)


def follow(
    text: Text, player: Player, mistake: Mistake, logged: Sequence[LoggedRound], steps: int
) -> tuple[Played, ...]:
    """Return what the draft would have proposed in the rounds of a log, each after what the log says of those before.

    A round without drafts gets `steps` of them, as it should have had, unless it emits the last token. That counts as
    one that no draft could have been: what is accepted ends before it.
    """
    context, rounds = text.prompt, list[Played]()
    for number, one in enumerate(logged, start=1):
        left = text.tokens[context + 1 : -1]
        count = 0 if is_idle(mistake, number) else max(0, drafts_due(one, steps, last=not left) - mistake.fewer)
        drafts = player.propose(context, count)
        accepted = accept(drafts[: len(left)], left)
        rounds.append(Played(context, drafts, accepted))
        player.verified(one.drafts if one.drafts is not None else drafts, len(one.emitted) - 1)
        context += len(one.emitted)
    return tuple(rounds)


def drafts_due(one: LoggedRound, steps: int, *, last: bool) -> int:
    """Return how many drafts a round of a log should have had; `last`: it emits the last token."""
    if one.drafts is None and one.num_drafts is None:
        return steps
    return one.asked or (0 if last else steps)


def is_idle(mistake: Mistake, number: int) -> bool:
    """Return whether a round, counted from 1, is left without drafts."""
    return mistake.idle > 0 and number % mistake.idle == 0
