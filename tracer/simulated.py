"""Decoding with a mistake: what an engine that makes it emits, and which drafts it accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from draftproof.tracer.oracle import SPAN, BitRows, ReadView, Round
from draftproof.tracer.program import Program
from draftproof.tracer.sessions import Asked, TracerAnswer

_SHADOW, STALE, VOID, OTHER = 1000, 999, 998, 1
"""Requests: those with the rows of rejected drafts (which lie behind the text that they ran behind), one with rows
that a chain wrote elsewhere, one whose rows nobody writes, and the neighbour."""


class Drafting(NamedTuple):
    """How many drafts a round has; the first are verified behind the prompt's last token, or behind the first token."""

    width: int
    with_prompt: bool = False


class Neighbour(NamedTuple):
    """Another request of the session: all tokens that ran, and how many of them were its prompt."""

    tokens: tuple[int, ...]
    prompt: int


@dataclass
class Live:
    """What a mistake knows of the request that is decoded, which has number 0; its neighbour has number OTHER.

    `begin` is the row of the last token that is emitted, with which a round begins; `before` is that of the round
    before, `begins` are those of all. `rejected` is the request with the rows of the drafts that the round before
    rejected, `first` the place of the first of them, `end` of the last. `full` has the rows of last drafts in rounds
    that accepted all, `stale` those that a chain wrote.
    """

    prompt: int
    width: int
    neighbour: Neighbour | None = None
    begin: int = 0
    before: int = 0
    begins: set[int] = field(default_factory=set)
    rejected: int | None = None
    first: int = 0
    end: int = 0
    full: set[int] = field(default_factory=set)
    stale: set[int] = field(default_factory=set)


class EngineMistake(NamedTuple):
    """A mistake of an engine: what is read, computed, asked or answered in place of what is right.

    `family` are the mistakes that differ in numbers alone. `output` gives the row whose output is taken at a step. One
    that `reads_other` reads rows of a neighbour. With `runs_rejected` there are the rows of rejected drafts, and with
    `keeps_chain` those of the draft's chain, so many places further, in request STALE; one that `poisons` leaves there
    what is no number where the chain has read such. Where caches append, `target_keeps` rejected drafts stay in the
    target's, and `draft_keeps` in a standalone draft's, so that what follows is further; with -1 the last of all
    accepted drafts is not in the draft's, and what follows is nearer. The step of a prompt of up to `counts_prompts`
    tokens is counted as a round. One that `is_symptom` says what is seen, which has many causes.
    """

    name: str
    family: str = ""
    view: Callable[[Live], ReadView] = lambda live: ReadView()
    program: Callable[[Program], Program] = lambda program: program
    prompt: Callable[[tuple[int, ...]], tuple[int, ...]] = lambda prompt: prompt
    output: Callable[[Live, int], int] | None = None
    width: int | None = None
    reads_other: bool = False
    runs_rejected: bool = False
    keeps_chain: int = 0
    poisons: bool = False
    target_keeps: int = 0
    draft_keeps: int = 0
    counts_prompts: int = 0
    is_symptom: bool = False


RIGHT = EngineMistake("right")


def simulated(
    program: Program,
    prompt: Sequence[int],
    drafting: Drafting,
    mistake: EngineMistake = RIGHT,
    neighbour: Neighbour | None = None,
) -> Iterator[Round]:
    """Yield the rounds of a request without end; the first one is the prompt's, and has no drafts.

    Where drafts come with the prompt, it emits nothing.
    """
    made, width = mistake.program(program), drafting.width if mistake.width is None else mistake.width
    prompt = mistake.prompt(tuple(prompt))
    live = Live(len(prompt), width, neighbour)
    rows = BitRows(made, mistake.view(live))
    if mistake.reads_other and neighbour:
        rows.extend(neighbour.tokens, OTHER)

    def following() -> int:
        row = mistake.output(live, len(rows.tokens[0]) - live.prompt) if mistake.output else -1
        return rows.emitted(row) if row >= 0 else rows.following()

    live.begin = live.prompt
    rows.extend(prompt[:-1] if drafting.with_prompt else prompt)
    emitted = [prompt[-1] if drafting.with_prompt else following()]
    if len(prompt) <= mistake.counts_prompts:
        yield Round([], 0, [])
    yield Round([], 0, [] if drafting.with_prompt else emitted)
    cached = [*rows.tokens[0]]
    for number in count(_SHADOW):
        text = rows.tokens[0]
        live.before, live.begin = live.begin, len(text)
        live.begins.add(live.begin)
        rows.extend(emitted[-1:])
        cached += emitted[-1:]
        drafts, emitted = rows.drafted(width, cached=cached) if width else [], [following()]
        if mistake.keeps_chain:
            chain = range(live.begin, live.begin + width - 1)
            rows.keep_drafted(chain, [row_of(STALE, row + mistake.keeps_chain) for row in chain])
            written = {row + mistake.keeps_chain for row in chain}
            is_poisoned = mistake.poisons and live.begin not in live.stale
            live.stale = live.stale - written if is_poisoned else live.stale | written
        while emitted[-1] == [*drafts, None][len(emitted) - 1]:
            rows.extend(emitted[-1:])
            emitted.append(following())
        accepted = len(emitted) - 1
        if accepted == width:
            live.full.add(live.begin + width)
        live.rejected = None
        if mistake.runs_rejected and accepted < width:
            first, end = len(text), live.begin + width
            rows.tokens[number] = text.copy()
            live.rejected, live.first, live.end = number, first, end
            rows.extend(drafts[accepted:], number)
        rows.extend(drafts[accepted : accepted + mistake.target_keeps])
        cached += emitted[:-1]
        if mistake.draft_keeps < 0 and accepted == width:
            cached.pop()
        # The draft has not run its last token.
        cached += drafts[accepted : max(accepted, min(accepted + mistake.draft_keeps, width - 1))]
        yield Round(drafts, accepted, emitted)


def agrees(asked: Asked, rounds: Iterator[Round], served: TracerAnswer) -> bool:
    """Return whether what was served is what these rounds make, which are computed as far as they agree."""
    text, lengths, accepted, last = list[int](), list[int](), 0, 0
    for number, one in enumerate(rounds):
        before = len(text)
        text = list(asked.cut([*text, *one.emitted]))
        if served.tokens[before : len(text)] != tuple(text[before:]):
            return False
        if number:
            lengths.append(len(text) - before)
            accepted, last = accepted + one.accepted, one.accepted - lengths[-1] + 1
            if served.lengths is not None and served.lengths[number - 1 : number] != (lengths[-1],):
                return False
        if len(text) == asked.count or not {*asked.stops}.isdisjoint(text[-1:]):
            break
    # Engines differ in whether the last round's drafts beyond the end are counted.
    return (
        len(served.tokens) == len(text)
        and served.lengths in (None, tuple(lengths))
        and served.rounds in (None, len(lengths))
        and (served.accepted is None or accepted - max(last, 0) <= served.accepted <= accepted)
    )


def expected(program: Program, asked: Asked, drafting: Drafting) -> TracerAnswer:
    """Return what is right: the tokens, and with drafts the lengths of the rounds."""
    return made(asked, simulated(program, asked.prompt, drafting), told=drafting.width > 0)


def made(asked: Asked, rounds: Iterator[Round], *, told: bool) -> TracerAnswer:
    """Return what is served where these are the rounds; `told` if their lengths are."""
    text: tuple[int, ...] = ()
    lengths = list[int]()
    for one in rounds:
        before, text = len(text), asked.cut([*text, *one.emitted])
        lengths.append(len(text) - before)
        if len(text) == asked.count or not {*asked.stops}.isdisjoint(text[-1:]):
            break
    return TracerAnswer(tokens=text, lengths=tuple(lengths[1:]) if told else None)


def neighbours_of(requests: Sequence[Asked], served: Sequence[TracerAnswer], number: int) -> list[Neighbour]:
    """Return the other requests of a session that came before or together with one, with what they emitted."""
    wave = requests[number].wave
    return [
        Neighbour((*one.prompt, *answer.tokens[:-1]), len(one.prompt))
        for place, (one, answer) in enumerate(zip(requests, served, strict=True))
        if place != number and one.wave <= wave and all(0 <= token < 256 for token in answer.tokens)
    ]


def row_of(request: int, place: int) -> int:
    """Return the number of a row."""
    return request * SPAN + place
