"""A recorded log: prompts, and the drafts and emitted tokens of every round; one JSON object a line (docs/judge.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from draftproof.errors import DraftproofError
from draftproof.properties.values.base import Value
from draftproof.properties.values.scenario import Positive

T = TypeVar("T")
MOST_DRAFTS = 64
_Id = Annotated[int, Meta(ge=0)]
_Tokens = tuple[_Id, ...]


class LoggedRequest(Value, frozen=True, kw_only=True):
    """A request: at most `max_tokens` tokens follow its prompt, and one of `stop` ends it.

    `max_drafts`: no round of it has more drafts than that.
    """

    request: _Id
    prompt: Annotated[_Tokens, Meta(min_length=1)]
    max_tokens: Positive
    stop: _Tokens = ()
    max_drafts: Annotated[int, Meta(ge=0, le=MOST_DRAFTS)] = MOST_DRAFTS


class LoggedRound(Value, frozen=True, kw_only=True):
    """A round: the drafts that it verified, and the tokens that it emitted; round 0 runs the prompt."""

    request: _Id
    round: _Id
    emitted: Annotated[_Tokens, Meta(min_length=1)]
    drafts: Annotated[_Tokens, Meta(max_length=MOST_DRAFTS)] = ()


class Logged(NamedTuple):
    """A request with all of its rounds, in order."""

    request: LoggedRequest
    rounds: tuple[LoggedRound, ...]


class LogError(DraftproofError, ValueError):
    """A log that cannot be read; the message names the line, the field, its value, and what is expected."""


def read_log(lines: Iterable[bytes], name: str, vocab: int) -> tuple[Logged, ...]:
    """Return the requests of a log in its order; empty lines count for nothing. Raises LogError."""
    requests: dict[int, LoggedRequest] = {}
    rounds: dict[int, list[LoggedRound]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        fields = _object(line, where)
        if "prompt" in fields:
            request = _convert(fields, LoggedRequest, where)
            _require_tokens(where, vocab, prompt=request.prompt, stop=request.stop)
            if request.request in requests:
                raise LogError(f"{where}: invalid request {request.request}: expected a number of its own")
            requests[request.request], rounds[request.request] = request, []
        else:
            round_ = _convert(fields, LoggedRound, where)
            _require_tokens(where, vocab, drafts=round_.drafts, emitted=round_.emitted)
            _require_next(where, round_, requests, rounds)
            rounds[round_.request].append(round_)
    if not requests:
        raise LogError(f"invalid {name}: expected at least one request, as a line with its prompt")
    for number, of_request in rounds.items():
        if not of_request:
            raise LogError(f"invalid {name}: expected round 0 of request {number}, which emits its first token")
    return tuple(Logged(request, tuple(rounds[number])) for number, request in requests.items())


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LogError(f"{where}: expected a JSON object: {error}") from None
    if not isinstance(fields, dict):
        raise LogError(f"{where}: invalid line {_brief(fields)}: expected a JSON object")
    return fields


def _convert(fields: dict[str, Any], type_: type[T], where: str) -> T:
    try:
        return msgspec.convert(fields, type_, strict=True)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        field = path.strip("`.").partition("[")[0]
        value = f" {field} {_brief(fields[field])}" if field in fields else ""
        kind = "a request" if type_ is LoggedRequest else "a round, or a request with its prompt"
        raise LogError(f"{where}: invalid{value or ' line'}: {message[:1].lower()}{message[1:]}, of {kind}") from None


def _require_tokens(where: str, vocab: int, **fields: tuple[int, ...]) -> None:
    for field, tokens in fields.items():
        beyond = next((token for token in tokens if token >= vocab), None)
        if beyond is not None:
            raise LogError(f"{where}: invalid {field} {beyond}: expected token ids 0 .. {vocab - 1} of the model")


def _require_next(
    where: str, round_: LoggedRound, requests: dict[int, LoggedRequest], rounds: dict[int, list[LoggedRound]]
) -> None:
    """Require that a round is the next of a known request, and is no larger than it may be."""
    if round_.request not in requests:
        known = ", ".join(map(str, sorted(requests)[:8])) or "none"
        raise LogError(f"{where}: invalid request {round_.request}: expected one whose prompt is above: {known}")
    expected, most = len(rounds[round_.request]), requests[round_.request].max_drafts
    if round_.round != expected:
        raise LogError(f"{where}: invalid round {round_.round}: expected round {expected} of request {round_.request}")
    if len(round_.drafts) > most:
        raise LogError(f"{where}: invalid drafts, {len(round_.drafts)} of them: expected at most max_drafts {most}")
    if len(round_.emitted) > len(round_.drafts) + 1:
        raise LogError(
            f"{where}: invalid emitted, {len(round_.emitted)} of them: expected at most {len(round_.drafts) + 1}, a"
            " token more than drafts"
        )


def _brief(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 40 else f"{text[:32]}.."


def encode_log(log: Iterable[Logged]) -> Iterator[bytes]:
    """Yield the lines of a log."""
    for one in log:
        for line in (one.request, *one.rounds):
            yield msgspec.json.encode(line)
