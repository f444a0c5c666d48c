"""Test an endpoint with a tracer checkpoint: serve sessions, compare, and shrink and explain what is wrong."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from draftproof.properties.lib.base import Value
from draftproof.properties.values.verdict import Outcome
from draftproof.tracer.endpoints import Endpoint
from draftproof.tracer.explain import JudgedRequest, Reproduction, explanations, judged
from draftproof.tracer.program import Program
from draftproof.tracer.sessions import Asked, Session
from draftproof.tracer.simulated import Drafting, expected

_MOST_WRONG, _MOST_TRIES, _SHRINKING, _TOLD = 8, 80, 30.0, 3


class TracerCase(Value, frozen=True, kw_only=True):
    """A session that was served wrongly: of which checkpoint, and with how many drafts a round."""

    session: Session
    program: str
    width: Annotated[int, Meta(ge=0, le=64)]
    origin: str = ""


class Explained(Value, frozen=True, kw_only=True):
    """A mistake that reproduces some of the wrong requests, as `Reproduction` has it."""

    name: str
    wrong: int
    of_wrong: int
    right: int
    of_right: int
    bits: float


class TracerDifference(Value, frozen=True, kw_only=True):
    """The first difference: in which request, in its "tokens" or "rounds", at which place, what is right, what came.

    Of rounds the place is that of a decode round and the values are the tokens that it emits; it is -1, and the values
    are numbers of rounds, where the lengths are not told.
    """

    request: int
    what: Literal["tokens", "rounds"]
    place: int
    right: int | None
    got: int | None


class TracerReport(Value, frozen=True, kw_only=True):
    """What a run came to: `wrong` of the requests are wrong.

    `compared` are requests of which accepted drafts were told, too, and that could have had one; `rounds` are theirs
    that could. `architecture` and `draft` are the checkpoint's, by the names that `tracer build` takes; the draft is ""
    where there is none, or the subject has no such. `fault` is what `--fault` or `--patch` brought back, "" if nothing.
    No prompt that was tried tells the first `equal` explanations apart; not all of them may be listed.
    """

    verdict: Outcome
    endpoint: str
    requests: int
    tokens: int
    compared: int
    wrong: int
    seconds: float
    case: TracerCase | None = None
    first: TracerDifference | None = None
    explanations: tuple[Explained, ...] = ()
    equal: int = 0
    rounds: int = 0
    architecture: str = ""
    draft: str = ""
    fault: str = ""


def identity(program: Program) -> str:
    """Return what tells programs apart."""
    return hashlib.sha256(msgspec.json.encode(program)).hexdigest()[:16]


def judge(
    endpoint: Endpoint,
    program: Program,
    drawn: Iterable[Session],
    advance: Callable[[], object] = lambda: None,
    seconds: float = 60.0,
    *,
    shrink: bool = True,
    more: Iterable[Session] = (),
    needs_drafts: bool | None = None,
) -> TracerReport:
    """Serve sessions until some requests are wrong, and `more` of them that tell explanations apart.

    With `needs_drafts` it takes a round that could show an accepted draft for a PASS; by default, where the endpoint's
    number of drafts is known. Raises what the endpoint raises.
    """
    began, drafting = time.monotonic(), endpoint.drafting
    evidence, requests, tokens, compared, rounds = list[JudgedRequest](), 0, 0, 0, 0

    def serve(session: Session) -> list[JudgedRequest]:
        return list(judged(program, session, endpoint.serve(session), drafting))

    failing: Session | None = None
    for session in drawn:
        found = serve(session)
        requests, tokens = requests + len(found), tokens + sum(len(one.served.tokens) for one in found)
        showing = [drafted_rounds(program, one, drafting) for one in found]
        compared, rounds = compared + sum(map(bool, showing)), rounds + sum(showing)
        evidence += found
        if failing is None and any(one.is_wrong for one in found):
            failing = session
        advance()
        if sum(one.is_wrong for one in evidence) >= _MOST_WRONG:
            break
    wrong = sum(one.is_wrong for one in evidence)
    needs = drafting.width > 0 if needs_drafts is None else needs_drafts
    report = TracerReport(
        verdict=Outcome.FAIL if wrong else Outcome.PASS if tokens and (rounds or not needs) else Outcome.INCONCLUSIVE,
        endpoint=endpoint.name,
        requests=requests,
        tokens=tokens,
        compared=compared,
        rounds=rounds,
        wrong=wrong,
        seconds=0.0,
    )
    if failing is not None:
        short = shrunk(serve, failing) if shrink else failing
        again = serve(short)
        if not any(one.is_wrong for one in again):
            short, again = failing, [one for one in evidence if one.asked in failing.requests]
        known = [*evidence, *(again if short is not failing else [])]
        ranked = explanations(program, known, drafting, seconds, serve, more)
        number = next(i for i, one in enumerate(again) if one.is_wrong)
        report = replace(
            report,
            case=TracerCase(session=short, program=identity(program), width=drafting.width),
            first=difference(program, again[number], number, drafting),
            explanations=tuple(map(_explained, ranked[:_TOLD])),
            equal=sum(one.wrong + one.right == ranked[0].wrong + ranked[0].right for one in ranked),
        )
    return replace(report, seconds=time.monotonic() - began)


def drafted_rounds(program: Program, one: JudgedRequest, drafting: Drafting) -> int:
    """Return how many rounds were compared that could show an accepted draft: as they began, two tokens were left."""
    if not drafting.width or not one.served.tells_rounds:
        return 0
    is_told = one.served.lengths is not None and not one.is_wrong
    lengths = (one.served if is_told else expected(program, one.asked, drafting)).lengths or ()
    return sum(sum(lengths[number:]) > 1 for number in range(len(lengths)))


def has_room(program: Program, session: Session, drafting: Drafting) -> bool:
    """Return whether a draft of some request can be accepted: two tokens are left where its first drafts are."""
    texts = (expected(program, one, Drafting(0)).tokens for one in session.requests)
    return any(len(text) > (1 if drafting.with_prompt else 2) for text in texts)


def _explained(one: Reproduction) -> Explained:
    return Explained(**{name: value for name, value in one._asdict().items() if name != "family"})


def difference(program: Program, one: JudgedRequest, number: int, drafting: Drafting) -> TracerDifference:
    """Return the first difference between what was served and what is right."""
    right = expected(program, one.asked, drafting)
    pairs: list[tuple[Literal["tokens", "rounds"], tuple[int, ...], tuple[int, ...]]]
    pairs = [("tokens", right.tokens, one.served.tokens)]
    if one.served.lengths is not None:
        pairs.append(("rounds", right.lengths or (), one.served.lengths))
    for what, good, bad in pairs:
        for place in range(max(len(good), len(bad))):
            a, b = (values[place] if place < len(values) else None for values in (good, bad))
            if a != b:
                return TracerDifference(request=number, what=what, place=place, right=a, got=b)
    rounds = one.served.rounds
    if rounds is None and one.served.accepted is not None:
        rounds = len(one.served.tokens) - 1 - one.served.accepted
    return TracerDifference(request=number, what="rounds", place=-1, right=len(right.lengths or ()), got=rounds)


def shrunk(serve: Callable[[Session], Sequence[JudgedRequest]], session: Session) -> Session:
    """Return a smaller session that is still served wrongly: fewer requests, shorter prompts, fewer tokens."""
    tries, until = 0, time.monotonic() + _SHRINKING

    def fails(one: Session) -> bool:
        nonlocal tries
        tries += 1
        return any(found.is_wrong for found in serve(one))

    changed = True
    while changed:
        changed = False
        for smaller in _smaller(session):
            if tries >= _MOST_TRIES or time.monotonic() > until:
                return session
            if fails(smaller):
                session, changed = smaller, True
                break
    return session


def _smaller(session: Session) -> Iterator[Session]:
    """Yield sessions that are a step smaller, the smallest first."""
    requests = session.requests
    if len(requests) > 1:
        yield from (replace(session, requests=(one,)) for one in requests)
        yield from (replace(session, requests=requests[:i] + requests[i + 1 :]) for i in range(len(requests)))
    for i, one in enumerate(requests):
        for shorter in _shorter(one):
            yield replace(session, requests=(*requests[:i], shorter, *requests[i + 1 :]))


def _shorter(asked: Asked) -> Iterator[Asked]:
    length = len(asked.prompt)
    if asked.stops:
        yield replace(asked, stops=())
    if asked.wave:
        yield replace(asked, wave=0)
    for kept in dict.fromkeys((1, length // 2, length * 3 // 4, length - 1)):
        if 0 < kept < length:
            yield replace(asked, prompt=asked.prompt[:kept])
    for count in dict.fromkeys((1, asked.count // 2, asked.count - 1)):
        if 0 < count < asked.count:
            yield replace(asked, count=count)
