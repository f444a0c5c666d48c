"""A recorded log that can be judged: every request with its end, every round with its drafts (docs/judge.md).

Nothing of it may be missing, and every error names its line; an audit takes less (values/round_log.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from draftproof.properties.formats.round_log import LogError, LoggedRequest, LoggedRound, require_new

T = TypeVar("T")
_LACKING = " (a log without them can be audited: draftproof audit --log)"


class LoggedRun(NamedTuple):
    """A request with all of its rounds, in order."""

    request: LoggedRequest
    rounds: tuple[LoggedRound, ...]

    @property
    def drafts(self) -> tuple[tuple[int, ...], ...]:
        """Return the drafts of every round."""
        return tuple(one.drafts or () for one in self.rounds)


def read_whole(lines: Iterable[bytes], name: str, vocab: int) -> tuple[LoggedRun, ...]:
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
            if request.max_tokens is None:
                raise LogError(f"{where}: invalid line: expected max_tokens, the most tokens that the request may emit")
            require_new(request, requests, where)
            requests[request.request], rounds[request.request] = request, []
        else:
            round_ = _convert(fields, LoggedRound, where)
            _require_tokens(where, vocab, drafts=round_.drafts or (), emitted=round_.emitted)
            if round_.num_drafts and round_.drafts is None:
                raise LogError(
                    f"{where}: invalid num_drafts {round_.num_drafts}: expected drafts, not their number"
                    f" alone{_LACKING}"
                )
            _require_next(where, round_, requests, rounds)
            rounds[round_.request].append(round_)
    if not requests:
        raise LogError(f"invalid {name}: expected at least one request, as a line with its prompt")
    for number, of_request in rounds.items():
        if not of_request:
            raise LogError(f"invalid {name}: expected round 0 of request {number}, which emits its first token")
    return tuple(LoggedRun(request, tuple(rounds[number])) for number, request in requests.items())


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
    drafts = len(round_.drafts or ())
    if round_.round != expected:
        raise LogError(f"{where}: invalid round {round_.round}: expected round {expected} of request {round_.request}")
    if drafts > most:
        raise LogError(f"{where}: invalid drafts, {drafts} of them: expected at most max_drafts {most}")
    if len(round_.emitted) > drafts + 1:
        raise LogError(
            f"{where}: invalid emitted, {len(round_.emitted)} of them: expected at most {drafts + 1}, a"
            f" token more than drafts{_LACKING if round_.drafts is None else ''}"
        )


def _brief(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 40 else f"{text[:32]}.."


def encode_log(log: Iterable[LoggedRun]) -> Iterator[bytes]:
    """Yield the lines of a log."""
    for one in log:
        for line in (one.request, *one.rounds):
            yield msgspec.json.encode(line)
