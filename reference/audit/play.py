"""Rounds of one draft over one text: what it proposes, and how much of that is accepted (S-AUDIT-1, S-AUDIT-2).

Losslessness fixes the text, so a draft is played against it and the target is asked for nothing more.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from draftproof.properties.formats.round_log import LoggedRound, LoggedText
from draftproof.reference.audit.accepting import emits
from draftproof.reference.audit.mistakes import Mistake
from draftproof.reference.models.target import TargetPass


class Text(NamedTuple):
    """What a request ran: `tokens` are the prompt's `prompt` and what followed, `whole` the target's pass over them.

    `context` of them are committed before its first round. `own` is the target's choice at each place behind the
    prompt; it equals `tokens` unless another engine decoded them.
    """

    prompt: int
    context: int
    tokens: tuple[int, ...]
    whole: TargetPass
    own: tuple[int, ...]


class Played(NamedTuple):
    """A round: the context before it, the drafts verified, how many were accepted, and what it emits.

    Of the round of a log `emits` follows from the drafts that the log has.
    """

    context: int
    drafts: tuple[int, ...]
    accepted: int
    emits: tuple[int, ...] = ()


class Player(Protocol):
    """A draft at work on one text, round after round; it remembers what a mistake leaves behind."""

    def propose(self, context: int, count: int) -> tuple[int, ...]:
        """Return up to `count` drafts after t_0 .. t_n, n = `context`."""

    def verified(self, drafts: tuple[int, ...], accepted: int) -> None:
        """Say which drafts of the round just proposed were verified, and how many were right."""


def play(text: Text, player: Player, mistake: Mistake, steps: int, budget: int) -> tuple[Played, ...]:
    """Return the rounds in which `budget` tokens are emitted, the last of them uncut (S-AUDIT-2)."""
    context, rounds, late = text.context, list[Played](), Late(mistake)
    while context + 1 < text.context + budget:
        count = 0 if is_idle(mistake, len(rounds) + 1) else steps - mistake.fewer
        drafts = late.verifies(player.propose(context, count))
        emitted = emits(mistake.accepts, drafts, text.own[context + 1 :])
        accepted = len(emitted) - 1
        player.verified(drafts, accepted)
        rounds.append(Played(context, drafts, accepted, emitted))
        context += accepted + 1
    return tuple(rounds)


def follow(text: Text, player: Player, mistake: Mistake, logged: LoggedText, steps: int) -> tuple[Played, ...]:
    """Return what the draft would have proposed in the rounds of a log, each after what the log says of those before.

    A round without drafts gets `steps` of them, as it should have had, unless it emits the last token or the engine has
    as many as it likes. The last token counts as one that no draft could have been: what is accepted ends before it.
    """
    context, rounds, late = text.context, list[Played](), Late(mistake)
    for number, one in enumerate(logged.rounds, start=1):
        may_idle = logged.own_count or context + 2 >= len(text.tokens)
        count = 0 if is_idle(mistake, number) else max(0, drafts_due(one, steps, may_idle=may_idle) - mistake.fewer)
        drafts = late.verifies(player.propose(context, count))
        rounds.append(judged(mistake, context, drafts, one, text.own[context + 1 :]))
        player.verified(one.drafts if one.drafts is not None else drafts, len(one.emitted) - 1)
        context += len(one.emitted)
    return tuple(rounds)


def judged(mistake: Mistake, context: int, drafts: tuple[int, ...], one: LoggedRound, own: tuple[int, ...]) -> Played:
    """Return a round of a log as it is played; `own` are the target's choices from its first place on."""
    accepted = len(emits(mistake.accepts, drafts[: len(own) - 1], own)) - 1
    ran = drafts if one.drafts is None else one.drafts
    return Played(context, drafts, accepted, emits(mistake.accepts, ran, own))


class Late:
    """With a mistake that is `late`, each round verifies what was proposed for the one before it."""

    def __init__(self, mistake: Mistake) -> None:
        self._is_late = mistake.late
        self._before: tuple[int, ...] | None = None

    def verifies(self, proposed: tuple[int, ...]) -> tuple[int, ...]:
        """Return the drafts that a round verifies of what was proposed for it."""
        before = proposed if self._before is None else self._before
        self._before = proposed
        return before[: len(proposed)] if self._is_late else proposed


def drafts_due(one: LoggedRound, steps: int, *, may_idle: bool) -> int:
    """Return how many drafts a round of a log should have had; `may_idle`: without any it may be right."""
    if one.drafts is None and one.num_drafts is None:
        return steps
    return one.asked or (0 if may_idle else steps)


def is_idle(mistake: Mistake, number: int) -> bool:
    """Return whether a round, counted from 1, is left without drafts."""
    return mistake.idle > 0 and number % mistake.idle == 0
