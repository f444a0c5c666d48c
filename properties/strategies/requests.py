"""Requests: prompts, arrivals, budgets and stop tokens, as shape and size ask for."""

from __future__ import annotations

from itertools import cycle, islice
from typing import NamedTuple

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.features.some_requests import endless
from draftproof.properties.strategies.plans import plans
from draftproof.properties.strategies.shapes import Shape, Size
from draftproof.properties.values.scenario import Request, RoundPlan

_BELOW = 97
# Of the requests of a wide scenario the first two last for several rounds of all its drafts.
_LASTING = 2
# Beside a long prompt most are short: each token of a prompt takes time.
_BESIDE_LONG, _SHORT = (True, False, True), 24
# Whether the second prompt is as long as the first: what tells the two apart by their length mixes them up.
_AS_LONG = (False, False, False, True)
# Under most controllers a row goes without drafts beside others that have some.
_SKIPS = (False, True, True, True, True)


class Fit(NamedTuple):
    """What requests have to fit into."""

    vocab: int
    steps: int
    page_size: int
    chunk: int


def requests(choose: Choose, shape: Shape, size: Size, fit: Fit, count: int) -> tuple[Request, ...]:
    """Draw requests, sometimes alike in all but tokens, so that all end, or all go without drafts, in one step."""
    drawn = tuple(_request(choose, shape, size, fit, index) for index in range(count))
    if count > 1 and choose.one_of(_AS_LONG):
        drawn = (drawn[0], _as_long(drawn[1], drawn[0]), *drawn[2:])
    if shape.name == "shrinking_batch" and count > 1 and choose.boolean():
        return (drawn[0], *(_alike(drawn[1], shift, fit.vocab) for shift in range(count - 1)))
    if (shape.adaptive_steps or shape.name == "switching") and choose.one_of((False, True, True)):
        drawn = (drawn[0], *(_alike(drawn[0], shift, fit.vocab) for shift in range(1, count)))
    if shape.adaptive_steps and count > 1 and choose.one_of(_SKIPS):
        drawn = (drawn[0], _skipping(drawn[1]), *drawn[2:])
    return drawn


def _as_long(request: Request, first: Request) -> Request:
    """Return the request with a prompt as long as that of the first, which comes with it: both end in one step."""
    prompt = tuple(islice(cycle(request.prompt), len(first.prompt)))
    return replace(request, prompt=prompt, arrival=first.arrival)


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


def _request(choose: Choose, shape: Shape, size: Size, fit: Fit, index: int) -> Request:
    """Draw a request; with `together` the first runs alone, in a graph, and long enough for the others to join it."""
    prompt = _prompt(choose, shape, size, fit, index)
    budget = choose.integer(*_budget(shape, size, fit, index))
    # A stop inside an accepted run; at `budget - 1` stop and budget fall on one token.
    places = (-1, budget - 1) if shape.together else (-1, -1, budget - 1, max(budget - 2, 0), min(2, budget - 1))
    return Request(
        arrival=choose.one_of(_arrivals(shape, size, index)),
        prompt=prompt,
        budget=budget,
        rounds=plans(choose, shape.others if index and shape.others else shape.pattern, fit.steps),
        stop_at=choose.one_of(places),
        stops=_stops(choose, fit.vocab),
    )


def _prompt(choose: Choose, shape: Shape, size: Size, fit: Fit, index: int) -> tuple[int, ...]:
    """Draw a prompt of about a whole number of pages or chunks."""
    unit = choose.one_of((fit.page_size, fit.chunk))
    most, least = choose.one_of(size.prompts), size.shortest
    if least > 1 and index and choose.one_of(_BESIDE_LONG):
        least, most = 1, _SHORT
    if shape.long and not index and not size.captured:
        most = max(most, 14)
    length = _near(choose, unit, least, most)
    start, stride = choose.integer(0, min(fit.vocab, _BELOW) - 1), choose.integer(1, 7)
    prompt = tuple((start + stride * place * (place + 1) // 2) % fit.vocab for place in range(length))
    if length > fit.chunk and (start + stride) % 2:
        # Token 0 begins a later chunk: to be told from "no token".
        prompt = (*prompt[: fit.chunk], 0, *prompt[fit.chunk + 1 :])
    return prompt


def _near(choose: Choose, unit: int, low: int, high: int) -> int:
    """Draw a length of k * unit + {-1, 0, 1}, within low .. high; a long one is at least half of that."""
    most = max(1, high // unit)
    k = choose.integer(most // 2 if low > 1 else 1, most)
    return min(max(k * unit + choose.one_of((0, 1, -1)), low), high)


def _stops(choose: Choose, vocab: int) -> tuple[int, ...]:
    """Draw further stop tokens for a third of requests, from the whole vocabulary: few of them will ever come."""
    count = choose.one_of((0, 0, 0, 0, 1, 2, 3))
    return tuple(choose.integer(0, _BELOW - 1) * vocab // _BELOW for _ in range(count))


def _arrivals(shape: Shape, size: Size, index: int) -> tuple[int, ...]:
    """Return arrivals; `together`: the first is alone at first; "reuse": those without a slot wait for one together."""
    if not index:
        return (0,)
    if shape.name == "reuse" and not size.captured:
        return (0, 1) if index == 1 else (index - 1, index)
    if shape.draft_batch:
        return (1, 2, 5)
    if shape.crowded:
        return (0, 1)
    return (1, 2) if shape.together else (0, 0, 1, 3)


def _budget(shape: Shape, size: Size, fit: Fit, index: int) -> tuple[int, int]:
    """Return the least and the most tokens of a request.

    A controller needs about eight rounds to move twice, and the first request of a batch that has become too large for
    drafts should see it shrink again.
    """
    if size.captured:
        return (fit.steps + 2, fit.steps + 8) if index < _LASTING else (1, 6)
    if shape.adaptive_steps:
        return 14, 20
    if shape.draft_batch:
        return (3 + fit.steps, 6 + fit.steps) if index else (14 + 2 * fit.steps, 18 + 2 * fit.steps)
    if shape.long and index:
        return 1, 4
    return (9, 16) if shape.crowded or (shape.together and not index) else (6, 15)
