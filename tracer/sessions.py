"""What a server is asked of a tracer checkpoint, drawn from a seed, and what comes of it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from draftproof.properties.lib.base import Value
from draftproof.tracer.oracle import continuation
from draftproof.tracer.program import BOS, BYTES, VOCABULARY, Program

NEAR_SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048)
"""Pages, chunks and captured sizes: prompts are as long, or a little shorter or longer."""
_AT_ONCE, _NEAR = 6, (-2, -1, 0, 1, 2)
_PAGES, _CHUNKS = (16, 1, 8, 64), (64, 16, 512, 7)
Token = Annotated[int, Meta(ge=0, lt=VOCABULARY)]


class Asked(Value, frozen=True, kw_only=True):
    """One request; those of a wave come together, once the wave before is served."""

    prompt: Annotated[tuple[Token, ...], Meta(min_length=1)]
    count: Annotated[int, Meta(ge=1, le=4096)]
    stops: tuple[Token, ...] = ()
    wave: Annotated[int, Meta(ge=0, le=64)] = 0

    def cut(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Return the tokens up to the end of the request."""
        ends = (at for at, token in enumerate(tokens[: self.count], 1) if token in self.stops)
        return tuple(tokens[: next(ends, self.count)])


class Session(Value, frozen=True, kw_only=True):
    """Requests that are served by one run; a subject that has pages and chunks is given these."""

    requests: Annotated[tuple[Asked, ...], Meta(min_length=1)]
    page_size: Annotated[int, Meta(ge=1, le=256)] = 16
    chunk: Annotated[int, Meta(ge=1)] = 64

    @property
    def waves(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the requests by wave."""
        found = sorted({one.wave for one in self.requests})
        return tuple(tuple(i for i, one in enumerate(self.requests) if one.wave == wave) for wave in found)


class TracerAnswer(Value, frozen=True, kw_only=True):
    """What came of a request; None where it was not told.

    `lengths` are the tokens of each round behind the prompt's, `rounds` their number, `accepted` the accepted drafts in
    all.
    """

    tokens: tuple[int, ...]
    lengths: tuple[int, ...] | None = None
    rounds: int | None = None
    accepted: int | None = None

    @property
    def tells_rounds(self) -> bool:
        """Whether it says anything of accepted drafts."""
        return self.lengths is not None or self.rounds is not None or self.accepted is not None

    def as_told(self, other: TracerAnswer) -> TracerAnswer:
        """Return it with no more than another one tells."""
        lengths = self.lengths or ()
        return TracerAnswer(
            tokens=self.tokens,
            lengths=self.lengths if other.lengths is not None else None,
            rounds=len(lengths) if other.rounds is not None else None,
            accepted=sum(lengths) - len(lengths) if other.accepted is not None else None,
        )


def sessions(program: Program, seed: int, requests: int, longest: int, count: int) -> Iterator[Session]:
    """Yield sessions with so many requests in all, of prompts up to `longest` tokens and `count` new ones at most."""
    chance, left, number = random.Random(seed), requests, 0
    while left > 0:
        # Every third wave is one request alone, which is all that counters of a server can be compared with.
        first = 1 if number % 3 == 2 else min(left, chance.randint(2, _AT_ONCE))
        asked = [_fresh(program, chance, longest, count) for _ in range(first)]
        if number % 3 == 1:
            asked = _with_common_prefix(chance, asked, longest)
        turns = [_turn(program, chance, one, longest, count) for one in asked[: max(0, left - first)]]
        asked += [one for one in turns if one is not None and chance.random() < 0.5]
        yield _session(asked, number)
        left, number = left - len(asked), number + 1


def small_sessions(program: Program, seed: int, longest: int, count: int) -> Iterator[Session]:
    """Yield sessions of one request and of two in turn, without end: memory is as fresh as it can be."""
    chance = random.Random(seed)
    for number in itertools.count():
        asked = [replace(_fresh(program, chance, longest, 1), count=count, stops=()) for _ in range(1 + number % 2)]
        yield _session(asked, number // 2)


def _session(asked: Sequence[Asked], number: int) -> Session:
    """Return a session of one of several page sizes and chunks."""
    page_size, chunk = _PAGES[number % len(_PAGES)], _CHUNKS[number // 2 % len(_CHUNKS)]
    return Session(requests=tuple(asked), page_size=page_size, chunk=chunk)


def _ids(chance: random.Random, count: int) -> tuple[int, ...]:
    """Return ids other than BOS: most of them bytes, some runs of one id, some special ones."""
    kind = chance.random()
    if kind < 0.1:
        return (chance.randrange(BYTES),) * count
    return tuple(
        chance.randrange(BOS + 1, VOCABULARY) if chance.random() < 0.05 else chance.randrange(BYTES)
        for _ in range(count)
    )


def _length(chance: random.Random, longest: int) -> int:
    """Return the length of a prompt: 1, one near a size, or any of evenly spread logarithm."""
    kind = chance.random()
    if kind < 0.1:
        return 1
    if kind < 0.7:
        return max(
            1,
            min(longest, chance.choice([size for size in NEAR_SIZES if size <= longest] or [1]) + chance.choice(_NEAR)),
        )
    return round(longest ** chance.random())


def _fresh(program: Program, chance: random.Random, longest: int, count: int) -> Asked:
    prompt = (BOS, *_ids(chance, _length(chance, longest) - 1))
    return _asked(program, chance, prompt, count)


def _asked(program: Program, chance: random.Random, prompt: tuple[int, ...], count: int, wave: int = 0) -> Asked:
    new = chance.choice((1, count // 2 or 1, count, count))
    stops: tuple[int, ...] = ()
    if chance.random() < 0.25:
        stops = (continuation(program, prompt, new)[-1], chance.randrange(BYTES))
    return Asked(prompt=prompt, count=count if stops else new, stops=stops, wave=wave)


def _with_common_prefix(chance: random.Random, asked: list[Asked], longest: int) -> list[Asked]:
    """Return the requests with prompts that begin alike: the second wave finds the first's in a cache."""
    shared = (BOS, *_ids(chance, max(1, min(longest // 2, chance.choice((16, 48, 64, 100))) - 1)))
    return [
        Asked(prompt=(shared + one.prompt[1:])[:longest], count=one.count, wave=int(place > 0))
        for place, one in enumerate(asked)
    ]


def _turn(program: Program, chance: random.Random, asked: Asked, longest: int, count: int) -> Asked | None:
    """Return the next turn of a chat: the prompt, its answer and more; None where that is too long."""
    answer = asked.cut(continuation(program, asked.prompt, asked.count))
    prompt = (*asked.prompt, *answer, *_ids(chance, chance.randint(1, 20)))
    return _asked(program, chance, prompt, count, asked.wave + 1) if len(prompt) <= longest else None
