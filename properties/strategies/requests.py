"""Requests: prompts, arrivals, budgets and stop tokens, as profile and size ask for."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import composed, integers, sampled
from draftproof.properties.strategies.plans import plans
from draftproof.properties.strategies.profiles import Profile, Size
from draftproof.properties.values.scenario import Request, RoundPlan

# Every integer is drawn from below 100: Hypothesis mixes constants of imported sources into larger ranges, and lists
# would depend on what else a process has imported.
Draw = st.DrawFn
_BELOW = 97
# Of the requests of a wide scenario the first two last for several rounds of all its drafts.
_LASTING = 2
# Under most controllers a row goes without drafts beside others that have some.
_SKIPS = (False, True, True, True, True)


class Fit(NamedTuple):
    """What requests have to fit into."""

    vocab: int
    steps: int
    page_size: int
    chunk: int


@composed
def requests(draw: Draw, profile: Profile, size: Size, fit: Fit, count: int) -> tuple[Request, ...]:
    """Draw requests, sometimes alike in all but tokens, so that all end, or all go without drafts, in one step."""
    drawn = tuple(draw(_request(profile, size, fit, index)) for index in range(count))
    if profile.shaped == "shrinking_batch" and count > 1 and draw(st.booleans()):
        return (drawn[0], *(_alike(drawn[1], shift, fit.vocab) for shift in range(count - 1)))
    if (profile.adaptive or profile.shaped == "switching") and draw(sampled((False, True, True))):
        drawn = (drawn[0], *(_alike(drawn[0], shift, fit.vocab) for shift in range(1, count)))
    if profile.adaptive and count > 1 and draw(sampled(_SKIPS)):
        drawn = (drawn[0], _skipping(drawn[1]), *drawn[2:])
    return drawn


def endless(request: Request) -> Request:
    """Return the request without any stop of its own, hence without a grammar, whose words end with one."""
    return replace(without_stops(request), stop_at=-1, stops=(), grammar=None)


def without_stops(request: Request) -> Request:
    """Return the request with nothing but its stop ids, its budget and `max_len` to end it."""
    return replace(request, stop_sequences=(), sequences_at=(), min_tokens=0, ignore_eos=False)


def _alike(request: Request, shift: int, vocab: int) -> Request:
    """Return a request alike in all but tokens: such end together, and a batch shrinks by several rows."""
    prompt = tuple((token + shift) % vocab for token in request.prompt)
    return endless(replace(request, prompt=prompt, rounds=tuple(map(_forced, request.rounds))))


def _skipping(request: Request) -> Request:
    """Return the request with a round without drafts after its first with right ones, where others have more."""
    first = next((place for place, plan in enumerate(request.rounds) if plan.num_correct > 0), 0) + 1
    none = RoundPlan(num_drafts=0, num_correct=0)
    return replace(request, rounds=(*request.rounds[:first], none, *request.rounds[first:]))


def _forced(plan: RoundPlan) -> RoundPlan:
    return replace(plan, num_correct=plan.num_drafts // 2) if plan.num_correct < 0 else plan


@composed
def _request(draw: Draw, profile: Profile, size: Size, fit: Fit, index: int) -> Request:
    """Draw a request; with `together` the first runs alone, in a graph, and long enough for the others to join it."""
    prompt = _prompt(draw, profile, size, fit, index)
    budget = draw(integers(*_budget(profile, size, fit, index)))
    # A stop inside an accepted run; at `budget - 1` stop and budget fall on one token.
    places = (-1, budget - 1) if profile.together else (-1, -1, budget - 1, max(budget - 2, 0), min(2, budget - 1))
    return Request(
        arrival=draw(sampled(_arrivals(profile, size, index))),
        prompt=prompt,
        budget=budget,
        rounds=draw(plans(profile.others if index and profile.others else profile.pattern, fit.steps)),
        stop_at=draw(sampled(places)),
        stops=_stops(draw, fit.vocab),
    )


def _prompt(draw: Draw, profile: Profile, size: Size, fit: Fit, index: int) -> tuple[int, ...]:
    """Draw a prompt of about a whole number of pages or chunks."""
    unit = draw(sampled((fit.page_size, fit.chunk)))
    most = draw(sampled(size.prompts))
    if profile.long and not index and not size.captured:
        most = max(most, 14)
    length = _near(draw, unit, size.shortest, most)
    start, stride = draw(integers(0, min(fit.vocab, _BELOW) - 1)), draw(integers(1, 7))
    prompt = tuple((start + stride * place * (place + 1) // 2) % fit.vocab for place in range(length))
    if length > fit.chunk and (start + stride) % 2:
        # Token 0 begins a later chunk: to be told from "no token".
        prompt = (*prompt[: fit.chunk], 0, *prompt[fit.chunk + 1 :])
    return prompt


def _near(draw: Draw, unit: int, low: int, high: int) -> int:
    """Draw a length of k * unit + {-1, 0, 1}, within low .. high; a long one is at least half of that."""
    most = max(1, min(high // unit, _BELOW))
    k = draw(integers(most // 2 if low > 1 else 1, most))
    return min(max(k * unit + draw(sampled((0, 1, -1))), low), high)


def _stops(draw: Draw, vocab: int) -> tuple[int, ...]:
    """Draw further stop tokens for a third of requests, from the whole vocabulary: few of them will ever come."""
    count = draw(sampled((0, 0, 0, 0, 1, 2, 3)))
    return tuple(draw(integers(0, _BELOW - 1)) * vocab // _BELOW for _ in range(count))


def _arrivals(profile: Profile, size: Size, index: int) -> tuple[int, ...]:
    """Return arrivals; `together`: the first is alone at first; "reuse": those without a slot wait for one together."""
    if not index:
        return (0,)
    if profile.shaped == "reuse" and not size.captured:
        return (0, 1) if index == 1 else (index - 1, index)
    if profile.draft_batch:
        return (1, 2, 5)
    if profile.crowded:
        return (0, 1)
    return (1, 2) if profile.together else (0, 0, 1, 3)


def _budget(profile: Profile, size: Size, fit: Fit, index: int) -> tuple[int, int]:
    """Return the least and the most tokens of a request.

    A controller needs about eight rounds to move twice, and the first request of a batch that has become too large for
    drafts should see it shrink again.
    """
    if size.captured:
        return (fit.steps + 2, fit.steps + 8) if index < _LASTING else (1, 6)
    if profile.adaptive:
        return 14, 20
    if profile.draft_batch:
        return (3, 6) if index else (14, 18)
    if profile.long and index:
        return 1, 4
    return (9, 12) if profile.crowded or (profile.together and not index) else (5, 11)
