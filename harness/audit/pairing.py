"""Two logs beside each other: which rounds begin after the same text, and where the two part (S-AUDIT-15)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from draftproof.properties.formats.comparison import ComparedRound
from draftproof.properties.formats.round_log import LoggedRound, LoggedText
from draftproof.properties.lib.sequences import common_length


class SameStart(NamedTuple):
    """Two rounds that begin after the same `context` tokens; `left` counts the tokens that follow in either text."""

    context: int
    one: LoggedRound
    other: LoggedRound
    left: tuple[int, int]

    @property
    def is_last(self) -> bool:
        """Whether one of them is the last of its text."""
        return len(self.one.emitted) == self.left[0] or len(self.other.emitted) == self.left[1]

    @property
    def are_told(self) -> bool:
        """Whether both say how many drafts they have."""
        return _tells(self.one) and _tells(self.other)

    @property
    def fewer(self) -> int | None:
        """Which of both, 0 or 1, has fewer drafts though its text has room for more; None if neither is told to."""
        if not self.are_told or self.one.asked == self.other.asked:
            return None
        side = 0 if self.one.asked < self.other.asked else 1
        return side if min(self.one.asked, self.other.asked) < self.left[side] - 1 else None

    @property
    def stops_short(self) -> bool:
        """Whether one emits fewer tokens than the other, though its text goes on."""
        here, there = len(self.one.emitted), len(self.other.emitted)
        return here < min(there, self.left[0]) or there < min(here, self.left[1])


class PairedText(NamedTuple):
    """A prompt that two logs have: its place in either, and the rounds that begin after the same text.

    `parts_at` counts the tokens that both texts begin with, if they go on otherwise.
    """

    places: tuple[int, int]
    starts: tuple[SameStart, ...]
    parts_at: int | None


class PairedLogs(NamedTuple):
    """The prompts that two logs share, and how many requests only one of them has."""

    texts: tuple[PairedText, ...]
    unpaired: int

    @property
    def starts(self) -> Iterator[SameStart]:
        """Yield all pairs of rounds."""
        return (start for text in self.texts for start in text.starts)


class Parting(NamedTuple):
    """Where two rounds part: at which draft or token (1, 2, ..), and in what."""

    depth: int
    what: Literal["drafts", "number", "emitted"]


def paired_logs(one: Sequence[LoggedText], other: Sequence[LoggedText], *, exact: bool = False) -> PairedLogs:
    """Return the texts of two logs by their prompts; of copies the first goes with the first, and so on.

    With `exact` a round of one token that says nothing of drafts has none, if other rounds of its log do say.
    """
    if exact:
        one, other = _with_silent_rounds(one), _with_silent_rounds(other)
    places: dict[tuple[int, ...], list[int]] = {}
    for place, text in enumerate(other):
        places.setdefault(text.prompt, []).append(place)
    found = []
    for place, text in enumerate(one):
        if left := places.get(text.prompt):
            at = left.pop(0)
            found.append(_paired(text, other[at], (place, at)))
    return PairedLogs(tuple(found), len(one) + len(other) - 2 * len(found))


def _paired(one: LoggedText, other: LoggedText, places: tuple[int, int]) -> PairedText:
    one, other = _with_round_0(one, other), _with_round_0(other, one)
    common = common_length(one.tokens, other.tokens)
    ours, theirs = dict(_by_context(one)), dict(_by_context(other))
    starts = (
        SameStart(context, round_, theirs[context], (len(one.tokens) - context, len(other.tokens) - context))
        for context, round_ in ours.items()
        if context in theirs and context <= common
    )
    is_shorter = common == min(len(one.tokens), len(other.tokens))
    return PairedText(places, tuple(starts), None if is_shorter else common)


def _with_silent_rounds(log: Sequence[LoggedText]) -> Sequence[LoggedText]:
    """Return a log that tells of drafts with none in the rounds of one token that do not."""
    if not any(_tells(one) for text in log for one in text.rounds):
        return log
    return [
        text._replace(
            rounds=tuple(one if _tells(one) or len(one.emitted) > 1 else replace(one, drafts=()) for one in text.rounds)
        )
        for text in log
    ]


def _with_round_0(text: LoggedText, beside: LoggedText) -> LoggedText:
    """Return a text with its round 0, which has no drafts, among its rounds if the other one has drafts there."""
    if not text.first or beside.first or not any(map(_tells, text.rounds)):
        return text
    return text._replace(
        first=(), rounds=(LoggedRound(request=0, round=0, drafts=(), emitted=text.first), *text.rounds)
    )


def _by_context(text: LoggedText) -> Iterator[tuple[int, LoggedRound]]:
    """Yield each round with the number of tokens before it."""
    context = len(text.prompt) + len(text.first)
    for one in text.rounds:
        yield context, one
        context += len(one.emitted)


def parting(start: SameStart, *, exact: bool = False) -> Parting | None:
    """Return where two rounds part; None if they go alike.

    Drafts are compared as far as both rounds have them, for how many there are is the engine's affair; so is what was
    accepted. Of the last round of a text, which limits cut, it is as far as both go. With `exact` both have as many
    drafts, unless the text has no room for more, and emit as many tokens, unless the text ends.
    """
    one, other = start.one, start.other
    if one.drafts is not None and other.drafts is not None:
        common = common_length(one.drafts, other.drafts)
        if common < min(len(one.drafts), len(other.drafts)):
            return Parting(common + 1, "drafts")
    if exact and start.fewer is not None:
        return Parting(min(one.asked, other.asked) + 1, "number")
    common = common_length(one.emitted, other.emitted)
    is_short = common < min(len(one.emitted), len(other.emitted))
    is_other = start.stops_short if exact else not start.is_last and _accepts_otherwise(start)
    return Parting(common + 1, "emitted") if is_short or is_other else None


def _tells(one: LoggedRound) -> bool:
    return one.drafts is not None or one.num_drafts is not None


def _accepts_otherwise(start: SameStart) -> bool:
    """Whether the rounds differ in how many they accept of the drafts that both have, where both say how many."""
    one, other = start.one, start.other
    most = min(one.asked, other.asked) if start.are_told else max(len(one.emitted), len(other.emitted))
    return min(len(one.emitted) - 1, most) != min(len(other.emitted) - 1, most)


def first_parting(logs: PairedLogs, *, exact: bool = False) -> ComparedRound | None:
    """Return the earliest round that goes otherwise: by its number in the first log, then by request."""
    found = (
        (start.one.round, text.places[0], start, parted)
        for text in logs.texts
        for start in text.starts
        if (parted := parting(start, exact=exact)) is not None
    )
    least = min(found, key=lambda one: one[:2], default=None)
    if least is None:
        return None
    _, request, start, parted = least
    return ComparedRound(
        request=request,
        rounds=(start.one.round, start.other.round),
        context=start.context,
        depth=parted.depth,
        what=parted.what,
        drafts=(start.one.drafts, start.other.drafts),
        numbers=(_number(start.one), _number(start.other)),
        emitted=(start.one.emitted, start.other.emitted),
    )


def _number(one: LoggedRound) -> int | None:
    return one.asked if _tells(one) else None
