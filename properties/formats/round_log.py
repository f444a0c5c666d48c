"""A recorded log of rounds: what an engine was asked, and what it drafted and emitted (S-AUDIT-3).

One JSON object a line. A request comes before its rounds, which are numbered 1, 2, ..; round 0, what the prompt itself
emitted, may be left out where its token is the first of `emitted` of no round:

    {"request": 0, "prompt": [5, 1, 9]}
    {"request": 0, "round": 0, "emitted": [4]}
    {"request": 0, "round": 1, "drafts": [7, 7, 2], "emitted": [7, 3]}
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from draftproof.properties.lib.base import Value, explain
from draftproof.properties.lib.errors import DraftproofError

V = TypeVar("V", bound=Value)
TokenId = Annotated[int, Meta(ge=0)]
MOST_DRAFTS = 64
_LONGEST = 60


class LogError(DraftproofError, ValueError):
    """A log or a file of prompts cannot be used; the message names the file, the line and what was expected."""


class LoggedRequest(Value, frozen=True, kw_only=True):
    """A request as it came: at most `max_tokens` follow its prompt, where the log says so, and one of `stop` ends it.

    `max_drafts`: no round of it has more drafts than that.
    """

    request: int
    prompt: Annotated[tuple[TokenId, ...], Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    stop: tuple[TokenId, ...] = ()
    max_drafts: Annotated[int, Meta(ge=0, le=MOST_DRAFTS)] = MOST_DRAFTS


class LoggedRound(Value, frozen=True, kw_only=True):
    """A round as it went: the drafts that were verified and what was emitted.

    Without `drafts` the log has only their number, or nothing.
    """

    request: int
    round: Annotated[int, Meta(ge=0)]
    emitted: Annotated[tuple[TokenId, ...], Meta(min_length=1)]
    drafts: tuple[TokenId, ...] | None = None
    num_drafts: Annotated[int, Meta(ge=0)] | None = None

    @property
    def asked(self) -> int:
        """Return how many drafts were verified; where nothing is said as many as were accepted."""
        if self.drafts is not None:
            return len(self.drafts)
        return len(self.emitted) - 1 if self.num_drafts is None else self.num_drafts


class LoggedText(NamedTuple):
    """A request with its rounds in order, round 0 among them if it had drafts; else `first` is what it emitted.

    `own_count`: how many drafts a round has, also none, is the engine's affair (S-AUDIT-3).
    """

    prompt: tuple[int, ...]
    first: tuple[int, ...]
    rounds: tuple[LoggedRound, ...]
    own_count: bool = False

    @classmethod
    def of(cls, prompt: tuple[int, ...], rounds: Sequence[LoggedRound]) -> LoggedText:
        """Return a request with its rounds 0, 1, .."""
        return cls(prompt, (), tuple(rounds)) if rounds[0].asked else cls(prompt, rounds[0].emitted, tuple(rounds[1:]))

    @property
    def context(self) -> int:
        """Return how many tokens were committed before the first of its rounds."""
        return len(self.prompt) + len(self.first) - 1

    @property
    def tokens(self) -> tuple[int, ...]:
        """Return prompt and emitted tokens."""
        return (*self.prompt, *self.first, *(token for one in self.rounds for token in one.emitted))


def read_log(path: Path) -> tuple[LoggedText, ...]:
    """Return the requests of a log, by their number. Raises LogError."""
    found = lines(path)
    if found and all(_has(line, "prompt") and not _has(line, "request") for _, line in found):
        raise LogError(f"{path}: it has prompts and no rounds, as for --prompts: expected a log, with a line a round")
    requests: dict[int, LoggedRequest] = {}
    rounds: dict[int, dict[int, LoggedRound]] = {}
    for number, line in found:
        where = f"{path}, line {number}"
        if b'"prompt"' in line:
            request = decoded(line, LoggedRequest, where)
            require_new(request, requests, where)
            requests[request.request] = request
            rounds.setdefault(request.request, {})
            continue
        one = decoded(line, LoggedRound, where)
        if one.request not in requests:
            raise LogError(f"{where}: invalid request {one.request}: expected a line with its prompt before its rounds")
        if one.round in rounds[one.request]:
            raise LogError(f"{where}: invalid round {one.round} of request {one.request}: expected each round once")
        rounds[one.request][one.round] = one
    if not requests:
        raise LogError(f"{path}: expected at least one request, a line with its prompt")
    return tuple(_text(requests[at], rounds[at], str(path)) for at in sorted(requests))


def require_new(request: LoggedRequest, known: Container[int], where: str) -> None:
    """Raise LogError for a request with a number that another request has."""
    if request.request in known:
        raise LogError(f"{where}: invalid request {request.request}: expected a number of its own")


def _text(request: LoggedRequest, rounds: dict[int, LoggedRound], source: str) -> LoggedText:
    last = max(rounds, default=0)
    if missing := [number for number in range(last + 1) if number not in rounds]:
        raise LogError(
            f"{source}: round {missing[0]} of request {request.request} is missing: expected rounds 0 .. {last},"
            " of which round 0 has the token that the prompt emitted"
        )
    for one in rounds.values():
        _check(one, source)
    return LoggedText.of(request.prompt, [rounds[number] for number in range(last + 1)])


def _check(one: LoggedRound, source: str) -> None:
    if len(one.emitted) > one.asked + 1:
        raise LogError(
            f"{source}: invalid emitted of request {one.request}, round {one.round}: expected at most {one.asked + 1}"
            f" tokens, the drafts and one more, not {len(one.emitted)}"
        )


class Prompt(Value, frozen=True, kw_only=True):
    """A prompt as token ids, and how many tokens to decode after it, if not as many as after every one.

    The first token is the prompt's own: a draft comes with the second.
    """

    prompt: Annotated[tuple[TokenId, ...], Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=2)] | None = None


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Return the prompts of a file, one JSON object a line. Raises LogError."""
    given = lines(path)
    if any(_has(line, "emitted") for _, line in given):
        raise LogError(
            f"{path}: it is a log of rounds: expected prompts alone; give it as a log, to audit as --log and to compare"
            " as a side"
        )
    found = tuple(decoded(line, Prompt, f"{path}, line {number}") for number, line in given)
    if not found:
        raise LogError(f'{path}: expected at least one prompt, a line such as {{"prompt": [5, 1, 9]}}')
    return found


def check_vocabulary(texts: Iterable[Sequence[int]], vocab: int, source: str) -> None:
    """Raise LogError for a token that the target does not have."""
    for number, tokens in enumerate(texts):
        if bad := [token for token in tokens if token >= vocab]:
            raise LogError(f"{source}: invalid token {bad[0]} of request {number}: expected 0 .. {vocab - 1}")


def _has(line: bytes, field: str) -> bool:
    """Whether a line has a field of this name, as far as its text shows."""
    return b'"%s"' % field.encode() in line


def lines(path: Path) -> list[tuple[int, bytes]]:
    """Return the lines that are not empty, with their numbers. Raises LogError."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise LogError(f"{path}: it cannot be read: {error.strerror}") from None
    return [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]


def decoded(line: bytes, kind: type[V], where: str) -> V:
    """Return the value of one line. Raises LogError."""
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.ValidationError as error:
        path, value, expected = explain(str(error), msgspec.json.decode(line))
        got = "" if value is None else f" {json.dumps(value)[:_LONGEST]}"
        raise LogError(f"{where}: invalid {path or 'line'}{got}: expected {expected}") from None
    except msgspec.DecodeError as error:
        raise LogError(f"{where}: expected a JSON object: {error}") from None
