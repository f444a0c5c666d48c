"""Two logs beside each other: which rounds begin after the same text, and where the two part (S-AUDIT-15)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from draftproof.properties.formats.comparison import ComparedRound
from draftproof.properties.formats.round_log import LoggedRound, LoggedText


class SameStart(NamedTuple):
    """Two rounds that begin after the same `context` tokens; `is_last`: one of them is the last of its text."""

    context: int
    one: LoggedRound
    other: LoggedRound
    is_last: bool


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
    what: Literal["drafts", "emitted"]


def paired_logs(one: Sequence[LoggedText], other: Sequence[LoggedText]) -> PairedLogs:
    """Return the texts of two logs by their prompts; of copies the first goes with the first, and so on."""
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
    common = _common(one.tokens, other.tokens)
    ours, theirs = dict(_by_context(one)), dict(_by_context(other))
    last = {max(ours, default=0), max(theirs, default=0)}
    starts = (
        SameStart(context, round_, theirs[context], context in last)
        for context, round_ in ours.items()
        if context in theirs and context <= common
    )
    is_shorter = common == min(len(one.tokens), len(other.tokens))
    return PairedText(places, tuple(starts), None if is_shorter else common)


def _by_context(text: LoggedText) -> Iterator[tuple[int, LoggedRound]]:
    """Yield each round with the number of tokens before it."""
    context = len(text.prompt) + len(text.first)
    for one in text.rounds:
        yield context, one
        context += len(one.emitted)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two texts begin with alike."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def parting(start: SameStart) -> Parting | None:
    """Return where two rounds part; None if they go alike.

    Drafts are compared as far as both rounds have them, for limits may leave a round fewer; so is what was accepted. Of
    the last round of a text, which limits cut, it is as far as both go.
    """
    one, other = start.one, start.other
    if one.drafts is not None and other.drafts is not None:
        common = _common(one.drafts, other.drafts)
        if common < min(len(one.drafts), len(other.drafts)):
            return Parting(common + 1, "drafts")
    common = _common(one.emitted, other.emitted)
    is_short = common < min(len(one.emitted), len(other.emitted))
    if is_short or (not start.is_last and _accepted(one, other) != _accepted(other, one)):
        return Parting(common + 1, "emitted")
    return None


def _accepted(one: LoggedRound, beside: LoggedRound) -> int:
    """Return how many drafts a round accepted of those that both rounds had, where both say how many."""
    is_told = all(each.drafts is not None or each.num_drafts is not None for each in (one, beside))
    accepted = len(one.emitted) - 1
    return min(accepted, one.asked, beside.asked) if is_told else accepted


def first_parting(logs: PairedLogs) -> ComparedRound | None:
    """Return the earliest round that goes otherwise: by its number in the first log, then by request."""
    found = (
        (start.one.round, text.places[0], start, parted)
        for text in logs.texts
        for start in text.starts
        if (parted := parting(start)) is not None
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
        emitted=(start.one.emitted, start.other.emitted),
    )
